"""VectorEnv's contract for simulators on the agent's device: tensors are passed by DLPack, not through NumPy.

No step waits for the device: which episodes ended, and whether all numbers are finite, is stored there and read later.
"""

from typing import Any, Protocol

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlrun.envs.actions import Actions
from rlrun.envs.state import Tree
from rlrun.errors import ConfigError, RunError
from rlrun.nested import leaves, mapped, on
from rlrun.types import Return, Spec, Step

UNREAD = 1024  # vector steps after which ended episodes are read at the latest


class Simulator(Protocol):
    """Steps all its environments at once and resets them within the step.

    Arrays are of any type that DLPack can share, [num_envs, ...]; observations may be dicts of arrays. Returned arrays
    are never written to again.
    """

    num_envs: int
    single_observation_space: gym.Space
    single_action_space: gym.Space

    def reset(self, seed: int | None) -> Any:
        """Observations of new episodes; without a seed the random numbers continue."""

    def step(self, actions: Tensor) -> tuple[Any, Any, Any, Any, Any]:
        """Observations to act on next, rewards, terminated, truncated, and the true successors.

        Actions are in the environments' own units: float32, or int32.
        """

    def close(self) -> None: ...

    def get_extra_state(self) -> Tree:
        """Everything that determines the next steps, as NumPy arrays."""

    def set_extra_state(self, tree: Tree) -> None: ...


class Accelerated(nn.Module):
    """`num_envs` environments of a simulator."""

    pool = recipe = None  # none can be watched or started by itself
    verdict = None  # nothing was tested: it saves its state itself
    method, exactness = "native", "exact"

    def __init__(self, simulator: Simulator, seed: np.random.SeedSequence, device: torch.device | str, *, name: str):
        super().__init__()
        self.simulator, self.name, self.device = simulator, name, torch.device(device)
        self.seed: np.random.SeedSequence | None = seed  # of the next reset
        self.origin: dict[str, Any] = {"id": name, "wrappers": {}}
        self.digests: dict[str, str] = {}  # it reads no data
        self.reward_shape: tuple[int, ...] = ()
        self.actions = Actions(simulator.single_action_space)
        self.units = Units(self.actions, self.device)
        native = simulator.single_action_space
        obs_space = simulator.single_observation_space
        self.spec = Spec(obs_space, self.actions.space, simulator.num_envs, native_action=native)
        self.steps, self.obs = 0, None
        self.returns = torch.zeros(self.num_envs, dtype=torch.float64, device=self.device)  # of episodes under way
        self.lengths = torch.zeros(self.num_envs, dtype=torch.int64, device=self.device)
        self.broken = torch.zeros((), dtype=torch.bool, device=self.device)  # whether a number has not been finite
        self.unread: list[tuple[Tensor, Tensor, Tensor]] = []  # of each step: ended, returns, lengths
        self._read: list[tuple[Return, int]] = []
        self._weight = torch.ones(self.num_envs, device=self.device)

    @property
    def num_envs(self) -> int:
        return self.simulator.num_envs

    def reset(self, seed: np.random.SeedSequence | None = None) -> Any:
        """New episodes everywhere. The first reset is seeded, later ones when `seed` is."""
        drawn = seed or self.seed
        self.seed = None
        if self.device.type == "cuda":  # a step is ordered after its actions; a reset is not
            torch.cuda.synchronize(self.device)
        number = None
        if drawn is not None:
            number = int(drawn.generate_state(1, np.uint32)[0])
        self.obs = self._tensors(self.simulator.reset(number))
        self.returns = torch.zeros_like(self.returns)
        self.lengths = torch.zeros_like(self.lengths)
        return self.obs

    def start(self, seeds: dict[int, int]) -> Any:
        raise ConfigError(f"env {self.name}: a simulator of its own cannot start single environments")

    def begin(self, action: Tensor) -> None:
        """Does nothing: `step` does not wait for the device anyway."""

    @torch.no_grad()
    def step(self, action: Tensor) -> Step:
        """One step of every environment. `action` [num_envs, ...] in the units of `spec.action`, on any device."""
        self.steps += 1
        action = self.units.clip(action.to(self.device, non_blocking=True))
        native = self.units.to_native(action)  # kept until the end: the simulator may read it late
        obs, reward, terminated, truncated, final_obs = map(self._tensors, self.simulator.step(native))
        truncated = truncated & ~terminated
        self._count(reward, terminated | truncated, final_obs)
        self.obs = obs
        return Step(obs, reward, terminated, truncated, final_obs, action, self._weight, {"episodes": []})

    def pending_episodes(self) -> list[tuple[Return, int]]:
        """(Return, length) of the episodes that ended since the last call. Waits for the device.

        Raises RunError where a reward or an observation was not finite.
        """
        self._read_ended()
        episodes, self._read = self._read, []
        return episodes

    def close(self) -> None:
        self.simulator.close()

    def get_extra_state(self) -> Tree:
        """Without episodes that ended: `pending_episodes` must be called first."""
        if self.obs is None:
            return {"steps": self.steps, "simulator": None}
        counts = {"returns": self.returns.cpu(), "lengths": self.lengths.cpu()}
        return {"steps": self.steps, **counts, "obs": self.obs, "simulator": self.simulator.get_extra_state()}

    def set_extra_state(self, tree: Tree) -> None:
        self.steps, self.unread = tree["steps"], []
        if tree["simulator"] is None:
            return
        self.simulator.set_extra_state(tree["simulator"])
        self.seed, self.obs = None, on(self.device, tree["obs"])
        self.returns, self.lengths = tree["returns"].to(self.device), tree["lengths"].to(self.device)

    def _count(self, reward: Tensor, ended: Tensor, obs: Any) -> None:
        self.returns, self.lengths = self.returns + reward, self.lengths + 1
        self.unread.append((ended, self.returns, self.lengths))
        going_on = ~ended
        self.returns, self.lengths = self.returns * going_on, self.lengths * going_on
        self.broken = self.broken | ~_finite(reward) | ~_finite(obs)
        if len(self.unread) == UNREAD:
            self._read_ended()

    def _read_ended(self) -> None:
        if not self.unread:
            return
        if self.broken:
            raise RunError(f"env {self.name}: a reward or an observation is not finite by step {self.steps}")
        ended, returns, lengths = map(torch.stack, zip(*self.unread, strict=True))
        self._read += zip(returns[ended].tolist(), lengths[ended].tolist(), strict=True)
        self.unread = []

    def _tensors(self, tree: Any) -> Any:
        """As tensors on the agent's device, floating-point numbers in float32. Memory is shared where possible."""
        return mapped(self._tensor, tree)

    def _tensor(self, array: Any) -> Tensor:
        tensor = torch.from_dlpack(array).to(self.device, non_blocking=True)
        if tensor.is_floating_point():
            return tensor.float()
        return tensor


class Units:
    """Actions for tensors on a device."""

    def __init__(self, actions: Actions, device: torch.device):
        def tensor(values: Any) -> Any:
            return None if values is None else torch.as_tensor(values, device=device)

        space = self.space = actions.native
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
        """The actions that will be executed, in the agent's units. NaN stays NaN."""
        if self.bounds is None:
            return actions
        return torch.clamp(actions, *self.bounds)

    def to_native(self, actions: Tensor) -> Tensor:
        """From clipped agent actions to the environment's units, shape and dtype, [num_envs, ...]."""
        if self.scale is not None:
            actions = torch.clamp(actions * self.scale + self.offset, *self.range)
        elif self.offset is not None:
            actions = actions + self.offset
        return actions.reshape(-1, *self.space.shape).to(self.dtype).contiguous()


def _finite(tree: Any) -> Tensor:
    """Whether all numbers are finite, as a tensor, so that no step waits for the device."""
    return torch.stack([torch.isfinite(leaf).all() for leaf in leaves(tree)]).all()
