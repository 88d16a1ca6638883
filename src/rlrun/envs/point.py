"""A point that must go where nothing tells it to: what it is paid says where (navigation in arXiv 1703.03400)."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box


class PointGoal(gym.Env):
    """From the origin of the plane, by at most 0.1 a step in each direction; reward = -distance to (x, y).

    The observation is where the point is, so that the goal can be told by rewards alone. Success: within 0.1 of it.
    """

    observation_space = Box(-np.inf, np.inf, (2,), np.float32)
    action_space = Box(-0.1, 0.1, (2,), np.float32)

    def __init__(self, x: float = 0.3, y: float = 0.3):
        self.goal, self.at = np.array([x, y]), np.zeros(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.at = np.zeros(2)
        return self.at.astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.at = self.at + action
        distance = float(np.linalg.norm(self.at - self.goal))
        return self.at.astype(np.float32), -distance, False, False, {"is_success": distance < 0.1}


if "rlrun/PointGoal-v0" not in gym.registry:
    gym.register("rlrun/PointGoal-v0", f"{__name__}:PointGoal", max_episode_steps=20)
