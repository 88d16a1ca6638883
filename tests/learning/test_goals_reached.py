"""Goals with sparse rewards are reached with hindsight replay, and almost never without it."""

import importlib.metadata
from collections.abc import Callable
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet

from rlrun.config.jobs import jobs
from rlrun.config.schema import run_config
from rlrun.core.loop import Loop
from rlrun.core.random import sequence
from rlrun.envs.stepping.vector import VectorEnv
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


# SAC has a preset for PointReach
SETTINGS = {
    "sac": (),
    "ddpg": (
        "preset=none", "env.normalize=obs", "network.hidden=[64,64]", "algo.gamma=0.95", "algo.tau=0.05",
        "algo.actor_learning_rate=1e-3", "algo.loop.warmup_steps=1000", "algo.loop.batch_size=256",
        "algo.noise.random_action=0.2",
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("algo", SETTINGS)
def test_a_point_reaches_its_goal_with_hindsight(algo: str, build: Build) -> None:
    words = [f"algo={algo}", "env=PointReach", "algo.buffer=hindsight", *SETTINGS[algo]]
    assert success_rate(build, 5000, *words) >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("algo", SETTINGS)
def test_a_gripper_reaches_its_goal_with_hindsight(algo: str, build: Build) -> None:
    """Needs the extra robotics, whose goal environments fail with MuJoCo 3.12 and later."""
    pytest.importorskip("gymnasium_robotics")
    if importlib.metadata.version("mujoco") not in SpecifierSet("<3.12"):
        pytest.skip("needs mujoco<3.12")
    words = [f"algo={algo}", "env=FetchReach", "algo.buffer=hindsight"]
    assert success_rate(build, 20_000, *words) >= 0.95
