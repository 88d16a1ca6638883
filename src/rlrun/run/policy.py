"""The agent of a run, trained or still in training, as a Python object that maps observations to actions."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor

from rlrun.config.schema import RunConfig
from rlrun.core.addon import Addons
from rlrun.core.agent import Agent
from rlrun.core.loop import Loop
from rlrun.core.previous import of_step, reward_shape
from rlrun.core.random import Stream
from rlrun.datasets.demonstrations import tensors
from rlrun.envs.stepping.actions import Actions, conversion, nested, single, values
from rlrun.envs.stepping.obs_adapter import FromTuple, in_dicts, read_mask
from rlrun.errors import ConfigError
from rlrun.functional.distributions import Distribution, SquashedNormal
from rlrun.loops.adaptation import MetaAgent
from rlrun.nested import leaves, mapped
from rlrun.networks.choices import legal
from rlrun.run.live_copy import LiveCopy
from rlrun.run.trained import passed_again, restored
from rlrun.settings import registry
from rlrun.types import MASK, Batch, Obs, Spec, carried

SAMPLES = 1000  # for the entropy of a distribution without a closed form


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


def copied(config: RunConfig, loop: Loop) -> "Policy":
    """Returns the policy of a loop as it is now. It shares nothing with the loop, and is not recorded by the engine.

    Its random streams are seeded by the step. Raises ConfigError for a meta-learner, which acts only after it has
    adapted to a task.
    """
    if isinstance(loop.agent, MetaAgent):
        raise ConfigError("self.run.policy(): a meta-learned agent must adapt to a task before it acts")
    found = LiveCopy(config, loop)
    found.follow(f"policy at {loop.steps}")
    return Policy(found.agent, found.addons, loop.env.spec, loop.env.device)


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
        self._reward_shape = reward_shape(spec)
        self._device = device
        self._stream = Stream(0, "policy", device)  # for samples of `distribution`
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

    def receive(self, reward: object) -> None:
        """Passes on the rewards of the environment's last step, a number or [batch].

        A policy that reads them, as with `network.previous=[reward]`, needs them before every observation that is not
        the first of an episode. Others ignore them.
        """
        if "reward" in self.addons.reads_previous and self._carry:
            rows = torch.as_tensor(np.asarray(reward), dtype=torch.float32, device=self._device)
            self._carry["carry.reward"] = rows.reshape(len(self._carry["first"]), *self._reward_shape)

    @torch.no_grad()
    def act(self, obs: object, explore: bool = False) -> Any:
        """Returns the action for one observation, or actions [batch, ...] for a batch of observations [batch, ...].

        If the batch size differs from that of the previous call, all rows start new episodes, as on the first call.

        explore: act as in training instead of deterministically.
        Raises ValueError, with the form that is needed, for an observation of another form or outside of its space.
        """
        seen, count, is_single = self._read(obs)
        self._carry = self._carry_of(count)
        if len(self._later) != count:
            self._later = torch.zeros(count, dtype=torch.bool, device=self._device)
        action, extras = self.addons.act(self.agent, seen, self._carry, explore)
        executed = self._actions.clip(action.cpu().numpy())
        if "action" in self.addons.reads_previous:
            extras |= of_step({"executed": torch.as_tensor(executed, device=self._device)}, ["action"])
        self._carry = carried(extras, self._later)
        native = self._actions.to_native(executed)
        if is_single:
            return single(self.action_space, native, 0)
        return native

    @torch.no_grad()
    def value(self, obs: object) -> np.ndarray:
        """Returns V(s): a number for one observation, [batch] for a batch; [..., columns] for reward vectors.

        This method, `q` and `distribution` take observations as `act` does. They change nothing: the state of a
        recurrent network is that before `obs`, so call them before `act(obs)`. Values are in the units of the rewards
        that the agent learns from, which `env.normalize=reward` and `algo.buffer.reward_scale` change. Raises
        ConfigError if the agent estimates no such values.
        """
        seen, carry, is_single = self._seen(obs)
        value = self.agent.state_values(seen)
        if value is None:
            raise self._lacks("value", seen, carry)
        return _array(value, is_single)

    @torch.no_grad()
    def q(self, obs: object, action: object = None) -> np.ndarray:
        """Returns Q(s, a): a number for one observation, [batch] for a batch; [..., columns] for reward vectors.

        action: as `act` returns it, one for each observation. With Discrete actions it may be left out: then all
        actions have a value, [..., actions], which is -inf for those that the mask forbids.
        An ensemble gives the mean of its members, which may be above the minimum that its agent learns from; a member
        that predicts a distribution of returns gives its mean. Further as in `value`.
        """
        seen, carry, is_single = self._seen(obs)
        if type(self.agent).action_values is Agent.action_values:
            raise self._lacks("q", seen, carry)
        is_discrete = isinstance(self.action_space, spaces.Discrete)
        if action is None and not is_discrete:
            raise ValueError(f"q(obs) needs Discrete actions, not {self.action_space}; call q(obs, action)")
        count = len(next(leaves(seen)))
        if action is None:
            rows = torch.zeros(count, dtype=torch.long, device=self._device)
        else:
            rows = _in_agent_units(self._actions, action, is_single, count, self._device)
        found = self.agent.action_values(seen, rows)
        if found is None:
            raise self._lacks("q", seen, carry)
        if is_discrete and found.dim() == 2:
            found = legal(found, seen)
        if is_discrete and action is not None:
            found = found[torch.arange(count, device=self._device), rows]
        return _array(found, is_single)

    @torch.no_grad()
    def distribution(self, obs: object) -> "ActionDistribution":
        """Returns pi(a|s), whose methods take and return actions of the environment. Further as in `value`.

        Exploration may differ from it, for example by noise on its samples.
        """
        seen, carry, is_single = self._seen(obs)
        dist = self.agent.action_distribution(seen, carry)
        if dist is None:
            raise self._lacks("distribution", seen, carry)
        return ActionDistribution(dist, self._actions, self._stream, is_single)

    def _lacks(self, wanted: str, seen: Obs, carry: Batch) -> ConfigError:
        """Returns the error that the agent has no value, no q or no distribution, with those that it has."""
        agent = self.agent
        found = []
        if agent.state_values(seen) is not None:
            found.append("value(obs)")
        if type(agent).action_values is not Agent.action_values and wanted != "q":
            found.append("q(obs, action)")
        if agent.action_distribution(seen, carry) is not None:
            found.append("distribution(obs)")
        lacks = f"algo={agent.registered} has no {wanted}"
        if wanted == "distribution" and type(agent).action_distribution is not Agent.action_distribution:
            lacks += " for these actions"
        return ConfigError(f"{lacks}; it has {' and '.join(found) or 'only act(obs)'}")

    def _seen(self, obs: object) -> tuple[Obs, Batch, bool]:
        """Returns observations [batch, ...] as the agent sees them, the carry, and whether `obs` is a single one."""
        read, count, is_single = self._read(obs)
        carry = self._carry_of(count)
        seen, _ = self.addons.see(read, carry, False)
        return seen, carry, is_single

    def _read(self, obs: Any) -> tuple[Obs, int, bool]:
        """Returns observations as tensors [batch, ...], their number, and whether `obs` is a single one."""
        obs = self._adapted(obs)
        is_single = _is_single(self.observation_space, obs)
        if is_single:
            obs = mapped(lambda part: np.asarray(part)[None], obs)
        sizes = _batch_sizes(self.observation_space, obs)
        if len(sizes) > 1:
            raise ValueError(f"entries of the observation have batches of different sizes: {sorted(sizes)}")
        (count,) = sizes
        return tensors(obs, self.observation_space, count, self._device), count, is_single

    def _carry_of(self, count: int) -> Batch:
        """Returns what the last `act` has left for this one, or that episodes start if the batch size differs."""
        if len(self._later) == count and self._carry:
            if "reward" in self.addons.reads_previous and "carry.reward" not in self._carry:
                raise ValueError("this policy reads rewards: call receive(reward) after each step of the environment")
            return self._carry
        return {"first": torch.ones(count, dtype=torch.bool, device=self._device)}

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


class ActionDistribution:
    """A distribution over the actions of the environment, of one observation or of a batch.

    `inner` is the same distribution in the agent's units, in which a bounded Box is [-1, 1]: a Normal, a SquashedNormal
    or a Categorical of `rlrun.functional.distributions`, or one that consists of several, with tensors [batch, ...].
    Densities are those of `inner`, per unit of the environment, before actions are clipped to their bounds.
    """

    def __init__(self, inner: Distribution, actions: Actions, stream: Stream, is_single: bool):
        self.inner = inner
        self._actions, self._stream, self._is_single = actions, stream, is_single

    @torch.no_grad()
    def sample(self) -> object:
        """Returns an action for each observation, drawn from a random stream of the policy, not of the agent."""
        noise = self.inner.noise(self._stream)
        if isinstance(self.inner, SquashedNormal):
            action, _ = self.inner.sample(noise)
        else:
            action = self.inner.sample(noise)
        return self._native(action)

    @torch.no_grad()
    def mode(self) -> object:
        """Returns the action that `act` returns: the most likely one, or the squashed mean."""
        return self._native(self.inner.mode())

    @torch.no_grad()
    def log_prob(self, action: object) -> np.ndarray:
        """Returns the log-probability or log-density of an action of the environment for each observation, [batch]."""
        mode = self.inner.mode()
        rows = _in_agent_units(self._actions, action, self._is_single, len(mode), mode.device)
        return _array(self.inner.log_prob(rows) - self._actions.log_scale, self._is_single)

    @torch.no_grad()
    def entropy(self) -> np.ndarray:
        """Returns the entropy for each observation, [batch].

        That of a squashed normal distribution has no closed form; it is estimated from 1,000 samples.
        """
        if isinstance(self.inner, SquashedNormal):
            mean, log_std = self.inner.mean, self.inner.log_std
            many = SquashedNormal(mean.expand(SAMPLES, *mean.shape), log_std.expand(SAMPLES, *mean.shape))
            entropy = many.entropy_estimate(self._stream).mean(0)
        else:
            entropy = self.inner.entropy()
        return _array(entropy + self._actions.log_scale, self._is_single)

    def _native(self, action: Tensor) -> object:
        native = self._actions.to_native(self._actions.clip(action.cpu().numpy()))
        if self._is_single:
            return single(self._actions.native, native, 0)
        return native


def _in_agent_units(actions: Actions, action: object, is_single: bool, count: int, device: torch.device) -> Tensor:
    """Returns actions of the environment in the agent's units, [batch, ...]. Raises ValueError for another form."""
    space = actions.native
    if is_single:
        action = nested(space, (np.asarray(part)[None] for part in values(space, action)))
    rows = actions.from_native(action)
    if len(rows) != count:
        raise ValueError(f"{len(rows)} actions for {count} observations")
    return torch.as_tensor(rows, device=device)


def _array(rows: Tensor, is_single: bool) -> np.ndarray:
    """Returns rows [batch, ...] as an array, without the first dimension for a single observation."""
    array = rows.cpu().numpy()
    if is_single:
        return array[0]
    return array


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
