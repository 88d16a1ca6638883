"""Deep Sea, bsuite's measure of exploration (Osband et al. 2019, arXiv 1908.03568, sec. 2.1)."""

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Discrete

from rlrun.types import Info


class DeepSea(gym.Env):
    """A diver sinks one row per step and swims left or right. The treasure lies below the last column, with reward 1.

    Each step to the right costs 0.01 / size, so rewards discourage the way to the treasure. A random policy finds it
    once in 2^size episodes. `instance_seed` determines for every cell which of the two actions means right. The
    observation is the cell, row * size + column. Episodes end when the diver reaches row `size`, the sea bed.
    """

    action_space = Discrete(2)

    def __init__(self, size: int = 10, instance_seed: int = 0):
        if size < 1:
            raise ValueError(f"size={size}: must be at least 1")
        self.size, self.row, self.column = size, 0, 0
        # [row, column]: the action that moves right
        self.right = np.random.default_rng(instance_seed).integers(2, size=(size, size))
        self.observation_space = Discrete((size + 1) * size)

    def reset(self, *, seed: int | None = None, options: dict[str, object] | None = None) -> tuple[int, Info]:
        super().reset(seed=seed)
        self.row = self.column = 0
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, Info]:
        last = self.size - 1
        goes_right = int(action) == self.right[self.row, self.column]
        found = bool(goes_right and self.column == last)
        reward = float(found) - 0.01 / self.size * float(goes_right)
        self.row += 1
        if goes_right:
            self.column = min(self.column + 1, last)
        else:
            self.column = max(self.column - 1, 0)
        terminated = self.row == self.size
        info: Info = {}
        if terminated:
            info["is_success"] = found
        return self.row * self.size + self.column, reward, terminated, False, info


gym.register("rlrun/DeepSea-v0", f"{__name__}:DeepSea")
