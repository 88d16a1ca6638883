"""Tests my_algo with the checks for every algorithm."""

from pathlib import Path

import pytest

from rlrun import testing

FILE = Path(__file__).with_name("my_algo.py")


@pytest.mark.parametrize("env", ["CartPole", "Pendulum"])
def test_my_algo_acts_learns_and_resumes_bit_for_bit(env: str) -> None:
    testing.check_algorithm(f"algo={FILE}", f"env={env}")
