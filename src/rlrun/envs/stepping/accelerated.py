"""Steps simulators that run on the agent's device. `Accelerated` has the methods of VectorEnv.

Arrays of JAX are passed by DLPack, not through NumPy. No step waits for the device: ended episodes and a flag for
numbers that are not finite are stored on the device and read later.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlrun.core.random import Stream
from rlrun.envs.making.tasks import Tasks
from rlrun.envs.saving.state import Tree
from rlrun.envs.stepping.actions import Actions
from rlrun.envs.stepping.goal_rewards import GoalRewards
from rlrun.envs.stepping.random_actions import sampled
from rlrun.errors import ConfigError, RunError
from rlrun.nested import leaves, mapped
from rlrun.tensors import on
from rlrun.types import NOTHING, Episode, Events, Obs, Spec, Step

UNREAD = 1024  # after this many vector steps, ended episodes are read from the device


class Simulator(Protocol):
    """What a simulator must provide. It steps all its environments at once and resets them within the step.

    Arrays are [num_envs, ...], of any type that DLPack can share; observations may be dicts of arrays. The simulator
    must not write to an array after it has returned it.
    """

    num_envs: int
    single_observation_space: gym.Space
    single_action_space: gym.Space

    def to(self, device: torch.device) -> None:
        """Moves to the agent's device, before the first reset. May do nothing if the simulator chooses its device."""

    def reset(self, seed: int | None) -> object:
        """Returns the observations of new episodes. If `seed` is None, the random generator continues."""

    def step(self, actions: Tensor) -> tuple[Any, Any, Any, Any, Any]:
        """Returns the observations to act on next, rewards, terminated, truncated, and the true successors.

        actions: [num_envs, ...] in the environment's units, float32 or int32.
        """

    def close(self) -> None: ...

    def get_extra_state(self) -> Tree:
        """Returns everything that determines the next steps, as NumPy arrays."""

    def set_extra_state(self, tree: object) -> None: ...


class Accelerated(nn.Module):
    """Wraps a Simulator for agents."""

    pool = recipe = None  # single environments cannot be made or started
    verdict = None  # there is no self-test, because the simulator has methods for its state
    method, exactness = "native", "exact"
    reports_success = False
    read_reports: Mapping[str, gym.Space] = {}  # simulators declare no reports

    def __init__(self, simulator: Simulator, seed: np.random.SeedSequence, device: torch.device | str, *, name: str):
        super().__init__()
        self.simulator, self.name, self.device = simulator, name, torch.device(device)
        simulator.to(self.device)
        self.seed: np.random.SeedSequence | None = seed  # for the next reset; None after the first one
        self.origin: dict[str, object] = {"id": name, "wrappers": {}}
        self.tasks = Tasks({}, seed, simulator.num_envs)  # without ranges: all environments have the same task
        self.goal_rewards: GoalRewards | None = None  # None if there are no single environments
        self.digests: dict[str, str] = {}  # empty, because simulators read no data files
        self.reward_shape: tuple[int, ...] = ()
        if isinstance(simulator.single_action_space, spaces.Tuple | spaces.Dict):
            raise ConfigError(f"env {name}: Tuple and Dict action spaces are not supported by simulators")
        self.actions = Actions(simulator.single_action_space)
        self.units = Units(self.actions, self.device)
        native = simulator.single_action_space
        obs_space = simulator.single_observation_space
        self.spec = Spec(obs_space, self.actions.space, simulator.num_envs, native_action=native)
        self.steps = 0
        self.obs: Any = None  # tensors to act on next; None before the first reset
        self.returns = torch.zeros(self.num_envs, dtype=torch.float64, device=self.device)  # of current episodes
        self.lengths = torch.zeros(self.num_envs, dtype=torch.int64, device=self.device)
        self.broken = torch.zeros((), dtype=torch.bool, device=self.device)  # whether any number was not finite
        # per step: ended, terminated, returns, lengths, on the device
        self.unread: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        self._unreported: list[Episode] = []  # ended episodes that were read from the device but not reported yet
        self._weight = torch.ones(self.num_envs, device=self.device)

    @property
    def num_envs(self) -> int:
        return self.simulator.num_envs

    def reset(self, seed: np.random.SeedSequence | None = None) -> Obs:
        """Starts new episodes in all environments and returns the observations.

        The first reset is always seeded; later resets are seeded only if `seed` is given.
        """
        sequence = seed or self.seed
        self.seed = None
        if self.device.type == "cuda":  # a simulator waits for the actions of a step, but for nothing at a reset
            torch.cuda.synchronize(self.device)
        number = None
        if sequence is not None:
            number = int(sequence.generate_state(1, np.uint32)[0])
        self.obs = self._tensors(self.simulator.reset(number))
        self.returns = torch.zeros_like(self.returns)
        self.lengths = torch.zeros_like(self.lengths)
        return self.obs

    def start(self, seeds: dict[int, int]) -> Obs:
        raise ConfigError(f"env {self.name}: a simulator cannot start single environments")

    def begin(self, action: Tensor) -> None:
        """Does nothing: `step` does not wait for the device anyway."""

    @torch.no_grad()
    def step(self, action: Tensor) -> tuple[Step, Events]:
        """Steps every environment. `action` [num_envs, ...] in the units of `spec.action`, on any device."""
        self.steps += 1
        action = self.units.clip(action.to(self.device, non_blocking=True))
        native = self.units.to_native(action)  # in a variable, as the simulator may read its memory later
        following, reward, terminated, truncated, next_obs = map(self._tensors, self.simulator.step(native))
        truncated = truncated & ~terminated
        self._count(reward, terminated, truncated, next_obs)
        self.obs = following
        step = {
            "following": following,
            "next_obs": next_obs,
            "reward": reward,
            "terminated": terminated,
            "truncated": truncated,
            "weight": self._weight,
            "executed": action,
        }
        return step, NOTHING

    def draw_tasks(self) -> None:
        """Does nothing, because the environments of a simulator have no tasks of their own."""

    def sample(self, random: Stream) -> Tensor:
        """Returns random actions [num_envs, ...] in the units of `spec.action`; see `random_actions.sampled`."""
        return sampled(self.spec, self.obs, random, self.device)

    def render(self) -> np.ndarray:
        raise ConfigError(f"env {self.name}: a simulator draws no images")

    def pending_episodes(self) -> list[Episode]:
        """Returns the episodes that ended since the last call. Waits for the device.

        Raises RunError if a reward or an observation was not finite.
        """
        self._read_ended()
        episodes, self._unreported = self._unreported, []
        return episodes

    def close(self) -> None:
        if self.goal_rewards is not None:
            self.goal_rewards.close()
        self.simulator.close()

    def get_extra_state(self) -> Tree:
        """Returns the state without ended episodes that are not reported yet: call `pending_episodes` first."""
        if self.obs is None:
            return {"steps": self.steps, "simulator": None}
        counts = {"returns": self.returns.cpu(), "lengths": self.lengths.cpu()}
        return {"steps": self.steps, **counts, "obs": self.obs, "simulator": self.simulator.get_extra_state()}

    def set_extra_state(self, tree: Any) -> None:
        self.steps, self.unread = tree["steps"], []
        if tree["simulator"] is None:
            return
        self.simulator.set_extra_state(tree["simulator"])
        self.seed, self.obs = None, on(self.device, tree["obs"])
        self.returns, self.lengths = tree["returns"].to(self.device), tree["lengths"].to(self.device)

    def _count(self, reward: Tensor, terminated: Tensor, truncated: Tensor, obs: object) -> None:
        ended = terminated | truncated
        self.returns, self.lengths = self.returns + reward, self.lengths + 1
        self.unread.append((ended, terminated, self.returns, self.lengths))
        self.returns, self.lengths = self.returns.masked_fill(ended, 0.0), self.lengths.masked_fill(ended, 0)
        self.broken = self.broken | ~_finite({"reward": reward, "obs": obs})
        if len(self.unread) == UNREAD:
            self._read_ended()

    def _read_ended(self) -> None:
        if not self.unread:
            return
        if self.broken:
            raise RunError(f"env {self.name}: a reward or observation was not finite, at or before step {self.steps}")
        ended, terminated, returns, lengths = map(torch.stack, zip(*self.unread, strict=True))
        envs = ended.nonzero()[:, 1]
        columns = [column.tolist() for column in (returns[ended], lengths[ended], envs, terminated[ended])]
        self._unreported += map(Episode, *columns)
        self.unread = []

    def _tensors(self, tree: object) -> Any:
        """Returns arrays as tensors on the agent's device, floats as float32. Shares memory if possible."""
        return mapped(self._tensor, tree)

    def _tensor(self, array: Any) -> Tensor:
        tensor = array
        if not isinstance(array, Tensor):
            tensor = torch.from_dlpack(array)
        tensor = tensor.to(self.device, non_blocking=True)
        if tensor.is_floating_point():
            return tensor.float()
        return tensor


class Units:
    """The conversions of `Actions`, for tensors on a device."""

    def __init__(self, actions: Actions, device: torch.device):
        def tensor(values: object) -> Any:
            if values is None:
                return None
            return torch.as_tensor(values, device=device)

        space = actions.native
        self.space = space
        self.bounds = None
        if actions.bounds is not None:
            self.bounds = [tensor(bound) for bound in actions.bounds]
        self.scale, self.offset = tensor(actions.scale), tensor(actions.offset)
        self.range = []  # lowest and highest native action
        if isinstance(space, spaces.Box):
            self.range = [tensor(space.low.ravel()), tensor(space.high.ravel())]
        self.dtype = torch.int32
        if np.issubdtype(space.dtype, np.floating):
            self.dtype = torch.float32

    def clip(self, actions: Tensor) -> Tensor:
        """Returns actions clipped to the agent's bounds. NaN stays NaN."""
        if self.bounds is None:
            return actions
        return torch.clamp(actions, *self.bounds)

    def to_native(self, actions: Tensor) -> Tensor:
        """Returns clipped actions of the agent in the environment's units, shape and dtype, [num_envs, ...]."""
        if self.scale is not None:
            actions = torch.clamp(actions * self.scale + self.offset, *self.range)
        elif self.offset is not None:
            actions = actions + self.offset
        return actions.reshape(-1, *self.space.shape).to(self.dtype).contiguous()


def _finite(tree: object) -> Tensor:
    """Returns whether all numbers are finite, as a tensor on the device, so that no step waits for it.

    0 * x is NaN where x is not finite. Summing it takes a third of the time of torch.isfinite(x).all().
    """
    return torch.stack([(0 * leaf).sum().float() for leaf in leaves(tree)]).isfinite().all()
