"""Tests my_intrinsic in a run, and alone."""

from pathlib import Path

import torch
from my_intrinsic import MyIntrinsic

from rlrun import testing

FILE = Path(__file__).with_name("my_intrinsic.py")


def test_my_intrinsic_learns_and_resumes_bit_for_bit() -> None:
    small = ["network.hidden=[8]", "algo.loop.rollout_steps=16", "trainer.engine=eager"]
    testing.check_algorithm("algo=ppo", "env=CartPole", f"algo.intrinsic={FILE}", *small)


def test_my_intrinsic_falls_with_visits() -> None:
    with testing.loop_of("algo=ppo", "env=CartPole", f"algo.intrinsic={FILE}") as loop:
        (model,) = [module for module in loop.addons.modules() if isinstance(module, MyIntrinsic)]
    rows = {"next_obs": torch.ones(1, 4), "weight": torch.ones(1)}
    rewards = []
    for _ in range(4):
        model.observe(rows)
        rewards.append(float(model.raw_reward(rows)))
    assert rewards[0] == 1.0 and rewards[3] == 0.5
