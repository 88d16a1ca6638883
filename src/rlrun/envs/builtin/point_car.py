"""A car that drives in the plane to a goal and stops there."""

from typing import SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from rlrun.types import Info


class PointCar(gym.Env):
    """A kinematic bicycle starts with a random heading, 60 to 150 m from its goal, without obstacles.

    Observation: how far the goal is ahead and to the left of the car, in m, and the car's speed in m/s. Actions: the
    angle of the front wheels to the left, as a share of MAX_ANGLE, and the acceleration, as one of MAX_ACCELERATION.
    The reward is the way in m that the car came nearer to the goal. An episode ends, as a success, where the car is
    within NEAR of the goal and slower than SLOW.
    """

    observation_space = Box(np.array([-np.inf, -np.inf, 0.0], np.float32), np.inf, (3,), np.float32)
    action_space = Box(-1.0, 1.0, (2,), np.float32)

    DT = 0.1  # seconds per step
    WHEELBASE = 2.5  # m
    MAX_ANGLE = 0.5  # radians
    MAX_ACCELERATION = 4.0  # m/s^2
    MAX_SPEED = 20.0  # m/s; there is no reverse gear
    NEAR = 1.0  # m
    SLOW = 0.1  # m/s

    def __init__(self) -> None:
        self.goal = np.zeros(2)  # m; x and y
        self.at = np.zeros(2)  # m
        self.heading = 0.0  # radians from the x axis
        self.speed = 0.0  # m/s

    def reset(self, *, seed: int | None = None, options: dict[str, object] | None = None) -> tuple[np.ndarray, Info]:
        super().reset(seed=seed)
        distance, direction = self.np_random.uniform([60.0, -np.pi], [150.0, np.pi])
        self.goal = distance * np.array([np.cos(direction), np.sin(direction)])
        self.at = np.zeros(2)
        self.heading = self.np_random.uniform(-np.pi, np.pi)
        self.speed = 0.0
        return self._seen(), {}

    def step(self, action: object) -> tuple[np.ndarray, SupportsFloat, bool, bool, Info]:
        steering, acceleration = np.clip(np.asarray(action, np.float64), -1.0, 1.0)
        before = self.distance
        faster = self.speed + self.DT * self.MAX_ACCELERATION * acceleration
        self.speed = float(np.clip(faster, 0.0, self.MAX_SPEED))
        turn = self.speed * np.tan(self.MAX_ANGLE * steering) / self.WHEELBASE
        self.heading += self.DT * turn
        self.at = self.at + self.DT * self.speed * np.array([np.cos(self.heading), np.sin(self.heading)])
        is_parked = self.distance < self.NEAR and self.speed < self.SLOW
        return self._seen(), before - self.distance, is_parked, False, {"is_success": is_parked}

    @property
    def distance(self) -> float:
        """Metres from the car to its goal."""
        return float(np.linalg.norm(self.goal - self.at))

    def _seen(self) -> np.ndarray:
        east, north = self.goal - self.at
        cos, sin = np.cos(self.heading), np.sin(self.heading)
        return np.array([cos * east + sin * north, cos * north - sin * east, self.speed], np.float32)


if "rlrun/PointCar-v0" not in gym.registry:
    gym.register("rlrun/PointCar-v0", f"{__name__}:PointCar", max_episode_steps=600)
