"""Defines the action space of the agent, and converts actions between the agent's and the environment's units."""

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from rlrun.core.random import Stream
from rlrun.errors import ConfigError
from rlrun.networks.choices import uniform
from rlrun.types import Spec

LOW, HIGH = np.float32(-1), np.float32(1)


class Actions:
    """For the agent, a bounded Box has the range [-1, 1] in every dimension, and discrete actions count from 0.

    Except for Discrete, an action of the agent is a vector, whatever its shape in the environment.
    """

    def __init__(self, space: gym.Space):
        self.native: Any = space
        self.space: Any = space  # the agent's action space
        self.bounds: tuple[Any, Any] | None = None  # (low, high) in the agent's units
        self.scale: Any = None  # native = action * scale + offset; None: a scale of 1, an offset of 0
        self.offset: Any = None
        match space:
            case spaces.Box():
                self._box(space)
            case spaces.Discrete():
                if space.start:
                    self.offset = space.start
                self.space = spaces.Discrete(space.n)
            case spaces.MultiDiscrete():
                if space.start.any():
                    self.offset = space.start.ravel()
                self.space = spaces.MultiDiscrete(space.nvec.ravel())
            case spaces.MultiBinary():
                self.space = spaces.MultiBinary(int(np.prod(space.shape)))
            case _:
                raise ConfigError(
                    f"env: {type(space).__name__} action spaces are not supported: an action must be one tensor; "
                    "wrap the environment"
                )

    def _box(self, space: spaces.Box) -> None:
        low = space.low.astype(np.float64).ravel()
        high = space.high.astype(np.float64).ravel()
        if not np.isfinite([low, high]).all():
            self.bounds = (low.astype(np.float32), high.astype(np.float32))
            self.space = spaces.Box(*self.bounds, dtype=np.float32)
            return
        self.bounds = (LOW, HIGH)
        self.space = spaces.Box(-1.0, 1.0, low.shape, np.float32)
        if (low != -1).any() or (high != 1).any():
            self.scale, self.offset = (high - low) / 2, (high + low) / 2

    def clip(self, actions: np.ndarray) -> np.ndarray:
        """Returns a copy of actions [num_envs, ...], clipped to the agent's bounds. NaN stays NaN."""
        if self.bounds is None:
            return actions.copy()
        low, high = self.bounds
        return np.minimum(np.maximum(actions, low), high)

    def to_native(self, actions: np.ndarray) -> np.ndarray:
        """Returns clipped actions of the agent in the environment's units, shape and dtype, [num_envs, ...]."""
        if self.scale is not None:
            actions = np.clip(actions * self.scale + self.offset, self.native.low.ravel(), self.native.high.ravel())
        elif self.offset is not None:
            actions = actions + self.offset
        if actions.dtype != self.native.dtype:
            if actions.dtype.kind == "f" and self.native.dtype.kind != "f":
                actions = np.rint(actions)
            actions = actions.astype(self.native.dtype)
        if actions.ndim == len(self.native.shape) + 1:
            return actions
        return actions.reshape(-1, *self.native.shape)

    def from_native(self, actions: np.ndarray) -> np.ndarray:
        """Returns the environment's actions [rows, ...] in the agent's units.

        Raises ValueError for actions of a wrong shape, and for discrete actions that are not in the native space.
        """
        if actions.shape[1:] != self.native.shape:
            raise ValueError(f"actions of shape {actions.shape[1:]}, not {self.native.shape}")
        if not isinstance(self.native, spaces.Box) and not all(map(self.native.contains, actions.astype(np.int64))):
            raise ValueError(f"actions that are not in {self.native}")
        actions = actions.reshape(-1, *self.space.shape)
        if self.offset is not None:
            actions = actions - self.offset
        if self.scale is not None:
            actions = actions / self.scale
        return actions.astype(self.space.dtype)


def sampled(spec: Spec, obs: Any, random: Stream, device: torch.device) -> Tensor:
    """Returns random actions [num_envs, ...] in the agent's units, drawn from a stream.

    They are uniform over the legal actions, or standard normal if a bound is infinite. obs: the current observations,
    which may hold action masks.
    """
    space, num_envs = spec.action, spec.num_envs
    if not isinstance(space, spaces.Box):
        legal = uniform(space, num_envs, obs, device)
        return legal.sample(legal.noise(random).to(device))
    if not space.is_bounded():
        return random.normal(num_envs, *space.shape)
    low, high = torch.as_tensor(space.low), torch.as_tensor(space.high)
    return low + (high - low) * random.uniform(num_envs, *space.shape)
