"""An environment whose actions cause faults. Every worker imports this module."""

import time
from typing import Any

import gymnasium as gym
from gymnasium.spaces import Discrete
from probes import Counter

ID = "faults/Fragile-v0"
WORK, RAISE, SLEEP, HANG = range(4)  # actions
SLOW = 0.3  # seconds of sleep


class Fragile(Counter):
    """Counts steps, and fails if the action says so."""

    action_space = Discrete(4)

    def step(self, action: Any) -> Any:
        if action == RAISE:
            raise ValueError("action RAISE")
        if action in (SLEEP, HANG):
            time.sleep(SLOW if action == SLEEP else 3600)
        return super().step(action)


gym.register(ID, f"{__name__}:{Fragile.__name__}")
