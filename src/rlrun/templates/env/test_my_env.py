"""Tests my_env with the checks for every environment."""

from pathlib import Path

import numpy as np
from my_env import MyEnv

from rlrun import testing

FILE = Path(__file__).with_name("my_env.py")


def test_my_env_follows_gymnasium_and_can_be_saved() -> None:
    testing.check_environment(f"env={FILE}:MyEnv")


def test_my_env_terminates_at_the_goal() -> None:
    env = MyEnv(radius=0.1)
    env.reset(seed=0)
    env.position = env.goal.copy()
    _, reward, terminated, truncated, info = env.step(np.zeros(2, np.float32))
    assert (reward, terminated, truncated, info) == (0.0, True, False, {"is_success": True})


def test_my_env_is_truncated_after_max_steps() -> None:
    env = MyEnv(speed=0.0, radius=0.0, max_steps=2)
    env.reset(seed=0)
    assert env.step(np.zeros(2, np.float32))[2:4] == (False, False)
    assert env.step(np.zeros(2, np.float32))[2:4] == (False, True)
