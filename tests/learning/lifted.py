"""A wrapper for a test: multiplies observations by a fixed random matrix."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from rlrun.settings import Units, config, register


@register("wrapper", "lifted")
class Lifted(gym.ObservationWrapper):
    """Shows vectors of `size` numbers, each a linear combination of those of the observation."""

    @config
    class Config:
        size: Units

    def __init__(self, cfg: Config, env: Any):
        super().__init__(env)
        (given,) = env.observation_space.shape
        self.matrix = np.random.default_rng(0).standard_normal((given, cfg.size)).astype(np.float32)
        self.observation_space = Box(-np.inf, np.inf, (cfg.size,), np.float32)

    def observation(self, observation: Any) -> Any:
        return (observation @ self.matrix).astype(np.float32)
