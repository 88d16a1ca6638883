"""Tests my_wrapper with the checks for every wrapper."""

from pathlib import Path

import gymnasium as gym
from my_wrapper import MyWrapper

from rlrun import testing

FILE = Path(__file__).with_name("my_wrapper.py")


def test_my_wrapper_keeps_to_its_spaces_and_can_be_saved() -> None:
    testing.check_wrapper("env=CartPole", f"plugins=[{FILE}]", "env.wrappers.my_wrapper.repeat=3")


def test_my_wrapper_sums_the_rewards_of_repeated_steps() -> None:
    env = MyWrapper(MyWrapper.Config(repeat=3), gym.make("CartPole-v1"))
    env.reset(seed=0)
    assert env.step(0)[1] == 3.0
