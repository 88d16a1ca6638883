"""Goals that only rewards reveal: an adapted policy finds them; without adaptation, staying in the centre is best."""

import statistics
from collections.abc import Callable
from typing import Any

import pytest
import torch
from toys import Values

from rlrun.config.jobs import jobs
from rlrun.config.schema import run_config
from rlrun.core.addon import Addons
from rlrun.core.loop import Loop
from rlrun.run.assemble import eval_env
from rlrun.run.evaluation import play

# What training on all goals at once can reach: rewards are not observed, so nothing beats staying at the centre,
# on average 0.3826 away from a point of the unit square, for 20 steps.
JOINT = -20 * 0.3826


class Unadapted:
    """The policy before adaptation."""

    def __init__(self, agent: Any):
        self.act = agent.act


def score(values: Values, agent: Any) -> tuple[float, float]:
    """Returns mean return and success rate over 96 goals that were not used in training."""
    played: list[Any] = []
    for batch in range(6):
        env = eval_env(run_config(values), 1000 + batch, "goals", 16, torch.device("cpu"))
        played += play(agent, Addons(), env, 16)
        env.close()
    return statistics.mean(one.episode_return for one in played), statistics.mean(one.success for one in played)


@pytest.mark.slow
def test_maml_finds_goals_that_no_fixed_policy_can_know(build: Callable[..., Loop]) -> None:
    values = jobs(["algo=maml", "env=PointGoal"])[0].values
    loop = build(values)
    while loop.steps < 200_000:
        loop.tick()
    adapted, successes = score(values, loop.agent)
    before, lucky = score(values, Unadapted(loop.agent))
    print(f"adapted {adapted:.2f} ({successes:.2f}), before {before:.2f} ({lucky:.2f})")
    assert adapted > -4.5 > before + 2.5
    assert adapted > JOINT + 2.5
    assert successes > 2 * lucky
