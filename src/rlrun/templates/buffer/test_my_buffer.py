"""Tests my_buffer in a run, and alone."""

from pathlib import Path

from my_buffer import MyBuffer

from rlrun import testing

FILE = Path(__file__).with_name("my_buffer.py")
WORDS = ["algo=dqn", "env=CartPole", f"algo.buffer={FILE}", "network.hidden=[8]", "algo.loop.warmup_steps=100",
         "algo.loop.batch_size=16", "algo.buffer.capacity=1000", "trainer.engine=eager"]  # fmt: skip


def test_my_buffer_learns_and_resumes_bit_for_bit() -> None:
    testing.check_algorithm(*WORDS)


def test_my_buffer_draws_recent_transitions_more_often() -> None:
    with testing.loop_of(*WORDS) as loop:
        assert isinstance(loop.buffer, MyBuffer)
        while len(loop.buffer) < 100:
            loop.tick()
    age = loop.buffer.sample(10_000)["age"].float()
    recent = float((age < age.max() / 4).float().mean())
    assert 0.45 < recent < 0.55  # sqrt(1/4) for power 2, a quarter if draws were uniform
