"""A trained agent to call from Python: takes observations, returns actions in the environment's own units."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces

from rlrun import registry
from rlrun.core.addon import Addons
from rlrun.core.agent import Agent
from rlrun.envs.actions import Actions
from rlrun.envs.obs_adapter import in_dicts
from rlrun.errors import ConfigError
from rlrun.loops.adaptation import MetaAgent
from rlrun.nested import leaves, mapped
from rlrun.run.trained import restored
from rlrun.types import Spec, carried


def load(run: str | Path, plugins: Sequence[str] = ()) -> "Policy":
    """The policy of a run: of its best snapshot (else its latest), or of the snapshot `RUN/snapshots/<name>`.

    The run may be untrusted: nothing in it is run as code, and modules that it needs are named in `plugins`.
    Raises ConfigError and SnapshotError with one line about what is wrong.
    """
    registry.load(plugins)
    with restored(Path(run), episodes=1, seed=None, words={}) as trained:
        if isinstance(trained.agent, MetaAgent):
            raise ConfigError(f"{run}: its agent acts after it has adapted to a task, which rlrun eval does")
        return Policy(trained.agent, trained.addons, trained.env.spec, trained.env.device)


class Policy:
    """Acts as `rlrun eval` does: with the normalisation of observations and the memory of the trained agent.

    Observations are those of the environment with the run's wrappers, such as frame stacks, around it. Where it shows
    masks of actions, an observation is the dict {"obs": ..., "action_mask": ...}.
    """

    def __init__(self, agent: Agent, addons: Addons, spec: Spec, device: torch.device):
        self.agent, self.addons = agent, addons
        self.observation_space: Space = spec.obs
        self.action_space: Space = spec.shown_action
        self._actions = Actions(spec.shown_action)
        self._device = device
        self._carry: dict[str, Any] = {}
        self.reset()

    def reset(self) -> None:
        """Forget the recurrent state: the next observation begins a new episode."""
        self._carry = {}

    @torch.no_grad()
    def act(self, obs: Any, explore: bool = False) -> Any:
        """The action for one observation, or actions [batch, ...] for a batch of observations [batch, ...].

        explore: act as in training instead of deterministically. Raises ValueError where the shape is neither.
        """
        obs = in_dicts(obs)
        single = _is_single(self.observation_space, obs)
        if single:
            obs = mapped(lambda part: np.asarray(part)[None], obs)
        seen = _tensors(self.observation_space, obs, self._device)
        count = len(next(leaves(seen)))
        if len(self._carry.get("first", ())) != count:
            self._carry = {"first": torch.ones(count, dtype=torch.bool, device=self._device)}
        action, extras = self.addons.act(self.agent, seen, self._carry, explore)
        self._carry = carried(extras, torch.zeros(count, dtype=torch.bool, device=self._device))
        native = self._actions.to_native(self._actions.clip(action.cpu().numpy()))
        if single:
            return native[0]
        return native


def _is_single(space: Space, obs: Any) -> bool:
    """Whether this is one observation, not a batch. Raises ValueError where the shape is neither."""
    if isinstance(space, spaces.Dict):
        kinds = {_is_single(part, obs[key]) for key, part in space.items()}
        if len(kinds) > 1:
            raise ValueError("some parts of the observation are a batch, others are one")
        return kinds.pop()
    shape, expected = np.shape(obs), space.shape or ()
    if shape == expected:
        return True
    if shape[1:] == expected and len(shape) == len(expected) + 1:
        return False
    raise ValueError(f"an observation of shape {list(shape)}; this policy sees {list(expected)}, or a batch of such")


def _tensors(space: Space, obs: Any, device: torch.device) -> Any:
    """An observation as the agent sees it: tensors, boxes in float32 unless they hold bytes."""
    if isinstance(space, spaces.Dict):
        return {key: _tensors(part, obs[key], device) for key, part in space.items()}
    array = np.asarray(obs)
    if isinstance(space, spaces.Box) and space.dtype != np.uint8:
        array = array.astype(np.float32)
    return torch.as_tensor(array, device=device)
