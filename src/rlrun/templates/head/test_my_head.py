"""Tests my_head in a run, and alone."""

from pathlib import Path

import torch
from my_head import Logistic

from rlrun import testing

FILE = Path(__file__).with_name("my_head.py")


def test_my_head_learns_and_resumes_bit_for_bit() -> None:
    small = ["network.hidden=[8]", "algo.loop.rollout_steps=16", "trainer.engine=eager"]
    testing.check_algorithm("algo=ppo", "env=Pendulum", f"algo.head={FILE}", *small)


def test_density_of_my_head_integrates_to_one() -> None:
    action = torch.linspace(-20.0, 20.0, 4001).unsqueeze(-1)
    dist = Logistic(torch.full_like(action, 0.5), torch.full_like(action, 0.7))
    assert abs(float(dist.log_prob(action).exp().sum() * 0.01) - 1.0) < 1e-3
