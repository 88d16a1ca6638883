"""The action space an agent sees, and the way from its actions to the environment's."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rlrun.errors import ConfigError

LOW, HIGH = np.float32(-1), np.float32(1)


class Actions:
    """Bounded Box: [-1, 1] stretched to the environment's bounds. Discrete: counted from 0. Others pass through."""

    def __init__(self, space: gym.Space):
        self.native: Any = space
        self.space, self.bounded = space, False
        self.scale: Any = None  # native = action * scale + offset; None: as it is
        self.offset: Any = None
        if isinstance(space, spaces.Box):
            self._box(space)
        elif isinstance(space, spaces.Discrete):
            self.offset = space.start if space.start else None
            self.space = spaces.Discrete(space.n)
        elif not isinstance(space, (spaces.MultiDiscrete, spaces.MultiBinary)):
            raise ConfigError(f"env: {type(space).__name__} action spaces are not supported; wrap the environment")

    def _box(self, space: spaces.Box) -> None:
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        if not np.issubdtype(space.dtype, np.floating) or not np.isfinite([low, high]).all():
            return
        self.bounded = True
        self.space = spaces.Box(-1.0, 1.0, space.shape, np.float32)
        if (low != -1).any() or (high != 1).any():
            self.scale, self.offset = (high - low) / 2, (high + low) / 2

    def clip(self, actions: np.ndarray) -> np.ndarray:
        """In the agent's units, [num_envs, ...]: what will be executed. A copy; NaN stays NaN."""
        return np.minimum(np.maximum(actions, LOW), HIGH) if self.bounded else actions.copy()

    def to_native(self, actions: np.ndarray) -> np.ndarray:
        """From clipped agent actions to the environment's units and dtype, [num_envs, ...]."""
        if self.scale is not None:
            actions = np.clip(actions * self.scale + self.offset, self.native.low, self.native.high)
        elif self.offset is not None:
            actions = actions + self.offset
        return actions if actions.dtype == self.native.dtype else actions.astype(self.native.dtype)
