"""Tests my_critic in a run, and alone."""

from pathlib import Path

import torch
from my_critic import MyCritic

from rlrun import testing

FILE = Path(__file__).with_name("my_critic.py")


def test_my_critic_learns_and_resumes_bit_for_bit() -> None:
    small = ["network.hidden=[8]", "algo.loop.warmup_steps=50", "algo.loop.batch_size=16", "trainer.engine=eager"]
    testing.check_algorithm("algo=sac", "env=Pendulum", f"algo.critic={FILE}", *small)


def test_my_critic_of_two_members_is_their_minimum() -> None:
    critic = MyCritic(MyCritic.Config(members=2, target_members=None, normalize_target=False, pessimism=1.0))
    z = torch.tensor([[1.0, 5.0], [3.0, 4.0]])
    torch.testing.assert_close(critic.target_return(z), torch.tensor([1.0, 4.0]))
