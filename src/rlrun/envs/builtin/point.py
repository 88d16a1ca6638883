"""Points in the plane: one that must find its goal from rewards (navigation in arXiv 1703.03400), and one that runs
along a lane in gusty wind, under a limit on energy."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box


class PointGoal(gym.Env):
    """From the origin of the plane, by at most 0.1 a step in each direction; reward = -distance to (x, y).

    The observation is the position, so that only rewards depend on the goal. Success: within 0.1 of it.
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


class PointRun(gym.Env):
    """A force in [-1, 1]^2 moves a point with friction; gusts push it across its lane, which lies along x.

    Rewards: progress, the speed along x less the squared distance from the lane; and energy, minus the squared force.
    Linear, quadratic, Gaussian: the optimum under a limit on energy is known (tests/point_run.py).
    """

    observation_space = Box(-np.inf, np.inf, (3,), np.float32)  # distance from the lane, speed along and across it
    action_space = Box(-1.0, 1.0, (2,), np.float32)
    reward_space = Box(-np.inf, np.array([np.inf, 0.0]), dtype=np.float64)

    KEPT, GAIN, DT = 0.8, 0.4, 0.2  # share of the speed that friction leaves, speed by a force of 1, time of a step

    def __init__(self, gust: float = 0.2):
        self.gust, self.y, self.speed = gust, 0.0, np.zeros(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.y, self.speed = 0.0, np.zeros(2)
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        force = np.asarray(action, np.float64)
        self.speed = self.KEPT * self.speed + self.GAIN * force
        self.speed[1] += self.gust * self.np_random.standard_normal()
        self.y += self.DT * self.speed[1]
        return self._seen(), np.array([self.speed[0] - self.y**2, -(force @ force)]), False, False, {}

    def _seen(self) -> np.ndarray:
        return np.array([self.y, *self.speed], np.float32)


for _env, _steps in ((PointGoal, 20), (PointRun, 100)):
    if f"rlrun/{_env.__name__}-v0" not in gym.registry:
        gym.register(f"rlrun/{_env.__name__}-v0", f"{__name__}:{_env.__name__}", max_episode_steps=_steps)
