"""Tests my_representation in runs that learn from rollouts and from replay."""

from pathlib import Path

import pytest

from rlrun import testing

FILE = Path(__file__).with_name("my_representation.py")
SETTINGS = {
    "ppo": ["algo.loop.rollout_steps=16"],
    "dqn": ["algo.loop.warmup_steps=50", "algo.loop.batch_size=16", "algo.buffer.capacity=1000"],
}


@pytest.mark.parametrize("algo", SETTINGS)
def test_my_representation_learns_and_resumes_bit_for_bit(algo: str) -> None:
    words = [f"algo={algo}", "env=CartPole", f"algo.representation={FILE}", "algo.representation.features=8"]
    testing.check_algorithm(*words, "network=linear", "trainer.engine=eager", *SETTINGS[algo])
