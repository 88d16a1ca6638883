"""Goals with sparse rewards are reached with hindsight replay, and almost never without it."""

from collections.abc import Callable
from typing import Any

import pytest

from rlrun.config.jobs import jobs
from rlrun.config.schema import run_config
from rlrun.core.loop import Loop
from rlrun.core.random import sequence
from rlrun.envs.vector import VectorEnv
from rlrun.run.evaluation import evaluate

Build = Callable[..., Loop]


def success_rate(build: Build, steps: int, *words: str) -> float:
    """Trains with the preset of algorithm and environment, and returns the success rate of 100 evaluated episodes."""
    values: dict[str, Any] = jobs([*words, f"trainer.total_steps={steps}"])[0].values
    loop = build(values)
    while loop.steps < steps:
        loop.tick()
    env = VectorEnv.make(run_config(values).env, sequence(1, "eval"))
    metrics = evaluate(loop.agent, loop.addons, env, episodes=100)
    env.close()
    print(f"{words}: success rate {metrics['eval/success_rate']:.2f}, return {metrics['eval/return_mean']:.1f}")
    return metrics["eval/success_rate"]


@pytest.mark.slow
@pytest.mark.parametrize("buffer", ["hindsight", "prioritized_hindsight", "replay"])
def test_bits_are_flipped_to_the_goal_with_hindsight_only(buffer: str, build: Build) -> None:
    words = ["algo=dqn", "env=BitFlip", "env.kwargs.bits=10", f"algo.buffer={buffer}"]
    rate = success_rate(build, 4000, *words)
    if buffer == "replay":
        assert rate <= 0.1
    else:
        assert rate >= 0.9


@pytest.mark.slow
def test_a_point_reaches_its_goal_with_hindsight(build: Build) -> None:
    assert success_rate(build, 5000, "algo=sac", "env=PointReach", "algo.buffer=hindsight") >= 0.95
