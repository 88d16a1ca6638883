"""Two tasks in which an agent moves a point in the plane: to a goal, and along a lane in gusty wind."""

from typing import SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from rlrun.types import Info


class PointGoal(gym.Env):
    """Navigation as in arXiv 1703.03400: a point starts at the origin and moves by at most 0.1 per step in x and y.

    The reward is minus the distance to the goal (x, y). The observation is the position, so only rewards depend on the
    goal. An episode is a success if the point is within 0.1 of the goal.
    """

    observation_space = Box(-np.inf, np.inf, (2,), np.float32)
    action_space = Box(-0.1, 0.1, (2,), np.float32)

    def __init__(self, x: float = 0.3, y: float = 0.3):
        self.goal, self.at = np.array([x, y]), np.zeros(2)

    def reset(self, *, seed: int | None = None, options: dict[str, object] | None = None) -> tuple[np.ndarray, Info]:
        super().reset(seed=seed)
        self.at = np.zeros(2)
        return self.at.astype(np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, Info]:
        self.at = self.at + action
        distance = float(np.linalg.norm(self.at - self.goal))
        return self.at.astype(np.float32), -distance, False, False, {"is_success": distance < 0.1}


class PointRun(gym.Env):
    """A force in [-1, 1]^2 moves a point with friction along a lane, the x axis. Gusts of wind push it in y direction.

    The reward is a vector of two components: progress, the speed in x direction minus the squared distance from the
    lane; and energy, minus the squared norm of the force. The dynamics are linear with Gaussian noise, the rewards
    quadratic, so the optimal policy under a limit on energy is known (tests/point_run.py).
    """

    observation_space = Box(-np.inf, np.inf, (3,), np.float32)  # y, speed in x direction, speed in y direction
    action_space = Box(-1.0, 1.0, (2,), np.float32)
    reward_space = Box(-np.inf, np.array([np.inf, 0.0]), dtype=np.float64)

    KEPT = 0.8  # factor of the speed by friction, per step
    GAIN = 0.4  # speed that a force of 1 adds per step
    DT = 0.2  # seconds per step

    def __init__(self, gust: float = 0.2):
        self.gust, self.y, self.speed = gust, 0.0, np.zeros(2)

    def reset(self, *, seed: int | None = None, options: dict[str, object] | None = None) -> tuple[np.ndarray, Info]:
        super().reset(seed=seed)
        self.y, self.speed = 0.0, np.zeros(2)
        return self._seen(), {}

    def step(self, action: object) -> tuple[np.ndarray, SupportsFloat, bool, bool, Info]:
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
