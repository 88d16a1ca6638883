"""A memory task: recall a sign until the last step."""

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete

from rlrun.types import Info


class Recall(gym.Env):
    """Shows a sign (-1 or 1) in the first observation, then `length` times 0.

    The reward is 1 if the last action matches the sign, else 0. The mean return of a policy without memory is 0.5.
    """

    observation_space = Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, length: int = 10):
        self.action_space = Discrete(2)
        self.length, self.sign, self.t = length, 0.0, 0

    def reset(self, *, seed: int | None = None, options: dict[str, object] | None = None) -> tuple[np.ndarray, Info]:
        super().reset(seed=seed)
        self.sign, self.t = -1.0, 0
        if self.np_random.random() < 0.5:
            self.sign = 1.0
        return np.array([self.sign], np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, Info]:
        self.t += 1
        over = self.t > self.length
        reward = float(over and (action == 1) == (self.sign > 0))
        return np.zeros(1, np.float32), reward, over, False, {}


if "rlrun/ProbeRecall-v0" not in gym.registry:
    gym.register("rlrun/ProbeRecall-v0", f"{__name__}:Recall")
