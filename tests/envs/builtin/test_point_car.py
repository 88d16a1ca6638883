"""PointCar: its geometry, rewards and ends."""

import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rlrun.envs.builtin.point_car import PointCar


def parked(**state: Any) -> PointCar:
    """Returns a car at the origin, which looks along the x axis."""
    env = PointCar()
    env.reset(seed=0)
    env.heading = 0.0
    for name, value in state.items():
        setattr(env, name, value)
    return env


def test_goals_are_60_to_150_m_away_in_all_directions() -> None:
    env = PointCar()
    seen = np.array([env.reset(seed=seed)[0] for seed in range(300)])
    distance = np.hypot(seen[:, 0], seen[:, 1])
    assert 60 <= distance.min() < 65 and 145 < distance.max() <= 150 and not seen[:, 2].any()
    for side in (seen[:, 0], seen[:, 1]):
        assert 0.4 < (side > 0).mean() < 0.6


def test_observation_is_the_goal_in_the_frame_of_the_car() -> None:
    env = parked(goal=np.array([3.0, 100.0]), at=np.array([3.0, 0.0]), heading=math.pi / 2)
    obs, reward, terminated, truncated, _ = env.step([0.0, 0.5])
    assert reward == pytest.approx(0.02) and not terminated and not truncated
    assert obs == pytest.approx([99.98, 0.0, 0.2], abs=1e-5), "0.1 s at 2 m/s^2"


def test_car_drives_circles_of_the_radius_of_its_wheels() -> None:
    env = parked(goal=np.array([0.0, 80.0]), speed=5.0)
    radius = PointCar.WHEELBASE / math.tan(PointCar.MAX_ANGLE)
    path = []
    for _ in range(60):
        env.step([2.0, 0.0])  # as 1
        path.append(env.at)
    middle = np.array([0.0, radius])
    assert np.abs(np.linalg.norm(np.array(path) - middle, axis=1) - radius).max() < 0.3
    assert env.speed == 5.0 and env.heading == pytest.approx(60 * 0.1 * 5.0 / radius)


def test_speed_is_limited_and_never_negative() -> None:
    env = parked()
    for _ in range(60):
        obs, *_ = env.step([0.0, 9.0])
    assert obs[2] == 20.0
    for _ in range(60):
        obs, *_ = env.step([0.0, -9.0])
    assert obs[2] == 0.0


@pytest.mark.parametrize("distance, speed, ends", [(0.9, 0.05, True), (1.1, 0.05, False), (0.9, 0.15, False)])
def test_an_episode_ends_near_the_goal_at_a_low_speed(distance: float, speed: float, ends: bool) -> None:
    env = parked(goal=np.array([distance, 0.0]), speed=speed)
    _, _, terminated, _, info = env.step([0.0, 0.0])
    assert terminated is ends and info["is_success"] is ends


def test_an_episode_has_600_steps() -> None:
    env: Any = gym.make("rlrun/PointCar-v0")
    env.reset(seed=0)
    ends = [env.step([0.0, 0.0])[2:4] for _ in range(600)]
    assert ends == [(False, False)] * 599 + [(False, True)]
