"""Tests my_loop in a run, and alone."""

from pathlib import Path

from my_loop import MyLoop

from rlrun import testing

FILE = Path(__file__).with_name("my_loop.py")
WORDS = ["algo=sac", "env=Pendulum", f"algo.loop={FILE}", "network.hidden=[8]", "algo.loop.warmup_steps=20",
         "algo.loop.batch_size=16", "algo.loop.ramp_steps=40", "trainer.engine=eager"]  # fmt: skip


def test_my_loop_learns_and_resumes_bit_for_bit() -> None:
    testing.check_algorithm(*WORDS)


def test_my_loop_makes_half_of_the_updates_on_the_ramp() -> None:
    with testing.loop_of(*WORDS) as loop:
        assert isinstance(loop, MyLoop)
        made = []
        for loop.steps in (20, 40, 60, 80):
            made.append(loop.updates_called_for())
    assert made == [0, 5, 20, 40]
