"""Shared by tests of a user's own files: the source of an environment, and a function that forgets imports."""

import sys

import gymnasium as gym

from rlrun import imports
from rlrun.config import declared
from rlrun.settings import registry

LINE = """
import gymnasium as gym
import numpy as np

class Line(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, limit=9):
        self.limit = limit

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.zeros(2, np.float32), 1.0, self.t >= self.limit, False, {}
"""


def forget(*beginnings: str) -> None:
    """Removes modules and registered names with these prefixes (default: `file`), so that they are imported anew."""
    imports._code.clear()
    imports.Neighbours.folders.clear()
    declared._tree.cache_clear()
    declared.declared.cache_clear()
    for names in (sys.modules, gym.registry, *registry._registry.values()):
        for name in [name for name in names if name.lower().startswith(beginnings or "file")]:
            del names[name]
