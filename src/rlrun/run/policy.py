"""Loads the trained agent of a run as a Python object, which maps observations to actions of the environment."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces

from rlrun.core.addon import Addons
from rlrun.core.agent import Agent
from rlrun.datasets.demonstrations import tensors
from rlrun.envs.stepping.actions import conversion, single
from rlrun.envs.stepping.obs_adapter import FromTuple, in_dicts, read_mask
from rlrun.errors import ConfigError
from rlrun.loops.adaptation import MetaAgent
from rlrun.nested import mapped
from rlrun.run.trained import passed_again, restored
from rlrun.settings import registry
from rlrun.types import MASK, Batch, Spec, carried


def load(run: str | Path, plugins: Sequence[str] = (), env: object = None) -> "Policy":
    """Returns the policy of a run, restored from its best snapshot, or from the latest if it has no best snapshot.

    run: the folder of the run, or the path `RUN/snapshots/<name>` of one of its snapshots. The run may be untrusted:
    nothing in it is executed as code.
    plugins: modules that register the algorithms, environments or networks that the run uses.
    env: the environment, if the run was trained with an object or a class in place of a name.
    Raises ConfigError or SnapshotError; the message is one line.
    """
    registry.load(plugins)
    with passed_again(Path(run), env), restored(Path(run), episodes=1, seed=None, words={}) as trained:
        if isinstance(trained.agent, MetaAgent):
            raise ConfigError(f"{run}: a meta-learned agent must adapt to a task before it acts; use rlrun eval")
        return Policy(trained.agent, trained.addons, trained.env.spec, trained.env.device)


class Policy:
    """Acts as `rlrun eval` does, with the observation normalisation and the recurrent state of the trained agent.

    Observations must come from the environment with the run's wrappers, such as frame stacking. If the environment
    provides action masks, an observation is the dict {"obs": ..., "action_mask": ...}, or has the entry "action_mask"
    if it is a dict anyway.
    """

    def __init__(self, agent: Agent, addons: Addons, spec: Spec, device: torch.device):
        self.agent, self.addons = agent, addons
        self.observation_space: Space = spec.obs
        self.action_space: Space = spec.shown_action
        self._actions = conversion(spec.shown_action)
        self._device = device
        self._carry: Batch = {}
        self._later = torch.zeros(0, dtype=torch.bool)  # `first` of steps that begin no episode, [batch]

    def reset(self) -> None:
        """Starts a new episode in every row of the batch: the next observations are the first of their episodes.

        Recurrent states are reset, and goals change as they do between the episodes of an evaluation. Call it when
        an episode ends; `act` starts new episodes by itself only if the batch size changes.
        """
        if self._carry:
            first = torch.ones_like(self._carry["first"])
            self._carry = self._carry | {"first": first}

    @torch.no_grad()
    def act(self, obs: Any, explore: bool = False) -> Any:
        """Returns the action for one observation, or actions [batch, ...] for a batch of observations [batch, ...].

        If the batch size differs from that of the previous call, all rows start new episodes, as on the first call.

        explore: act as in training instead of deterministically.
        Raises ValueError, with the form that is needed, for an observation of another form or outside of its space.
        """
        obs = self._adapted(obs)
        is_single = _is_single(self.observation_space, obs)
        if is_single:
            obs = mapped(lambda part: np.asarray(part)[None], obs)
        sizes = _batch_sizes(self.observation_space, obs)
        if len(sizes) > 1:
            raise ValueError(f"entries of the observation have batches of different sizes: {sorted(sizes)}")
        (count,) = sizes
        seen = tensors(obs, self.observation_space, count, self._device)
        if len(self._later) != count:
            self._later = torch.zeros(count, dtype=torch.bool, device=self._device)
            self._carry = {"first": ~self._later}
        action, extras = self.addons.act(self.agent, seen, self._carry, explore)
        self._carry = carried(extras, self._later)
        native = self._actions.to_native(self._actions.clip(action.cpu().numpy()))
        if is_single:
            return single(self.action_space, native, 0)
        return native

    def _adapted(self, obs: Any) -> Any:
        """Returns an observation, or a batch of them, as nested dicts with the mask as one vector per observation."""
        space, adapted = self.observation_space, in_dicts(obs)
        if not (isinstance(space, spaces.Dict) and MASK in space.spaces and isinstance(obs, dict) and MASK in obs):
            return adapted
        masks = obs[MASK]
        if not isinstance(masks, tuple) and np.shape(masks)[1:] == space[MASK].shape:
            masks = np.stack([read_mask(self.action_space, mask) for mask in masks])
        else:  # of one observation; a tuple has a mask for each part of the action
            masks = read_mask(self.action_space, masks)
        return adapted | {MASK: masks}


def _is_single(space: Space, obs: object, name: str = "observation") -> bool:
    """Returns True for one observation and False for a batch. Raises ValueError for any other form."""
    if not isinstance(space, spaces.Dict):
        return _is_single_array(space.shape or (), obs, name)
    if not isinstance(obs, dict):
        raise ValueError(f"{name} is a {type(obs).__name__}; expected {_form(space)}")
    kinds = set()
    for key, part in space.items():
        if key not in obs:
            raise ValueError(f"{name} has no entry {key!r}; expected {_form(space)}")
        kinds.add(_is_single(part, obs[key], f"{name}[{key!r}]"))
    if len(kinds) > 1:
        raise ValueError(f"some entries of the {name} have a batch dimension, others do not")
    return kinds.pop()


def _is_single_array(expected: tuple[int, ...], obs: Any, name: str) -> bool:
    form = f"expected {list(expected)}, or {list(expected)} after a batch dimension"
    if isinstance(obs, dict):
        raise ValueError(f"{name} is a dict; {form}")
    try:
        shape = np.shape(obs)
    except ValueError:
        raise ValueError(f"{name} has parts of different shapes; {form}") from None
    if shape == expected:
        return True
    if shape[1:] == expected and len(shape) == len(expected) + 1:
        return False
    raise ValueError(f"{name} has shape {list(shape)}; {form}")


def _form(space: spaces.Dict) -> str:
    """Returns the form of a dict or a tuple of observations for a message."""
    if isinstance(space, FromTuple):
        return f"a tuple of {len(space)}"
    entries = ", ".join(f"{key!r}: ..." for key in space)
    form = f"{{{entries}}}, each entry of one observation or of a batch"
    if MASK in space.spaces:
        form += f"; {MASK!r} is the mask in the info of the same step, or None to allow everything"
    return form


def _batch_sizes(space: Space, obs: Any) -> set[int]:
    """Returns the numbers of observations in the entries of a batch."""
    if not isinstance(space, spaces.Dict):
        return {len(obs)}
    sizes: set[int] = set()
    for key, part in space.items():
        sizes |= _batch_sizes(part, obs[key])
    return sizes
