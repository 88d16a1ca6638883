"""Goals that only rewards tell: who adapts finds them, who was trained on all of them at once waits in the middle."""

import statistics
from collections.abc import Callable
from typing import Any

import pytest
import torch
from toys import Values, put

from rlrun.config.jobs import jobs
from rlrun.config.schema import run_config
from rlrun.core.addon import Addons
from rlrun.core.assemble import eval_env
from rlrun.core.evaluation import play
from rlrun.core.loop import Loop


class Unadapted:
    """The policy from which tasks are reached, as it is."""

    def __init__(self, agent: Any):
        self.act = agent.act


def score(values: Values, agent: Any) -> tuple[float, float]:
    """Mean return and success rate over 96 goals that were not trained on."""
    played: list[Any] = []
    for batch in range(6):
        env = eval_env(run_config(values), 1000 + batch, "goals", 16, torch.device("cpu"))
        played += play(agent, Addons(), env, 16)
        env.close()
    return statistics.mean(one.episode_return for one in played), statistics.mean(one.success for one in played)


def trained(build: Callable[..., Loop], algo: str, steps: int, **changes: Any) -> tuple[Values, Any]:
    values = put(jobs([f"algo={algo}", "env=PointGoal"])[0].values, changes | {"env.num_envs": 20})
    loop = build(values)
    while loop.steps < steps:
        loop.tick()
    return values, loop.agent


@pytest.mark.slow
def test_maml_finds_goals_that_no_fixed_policy_can_know(build: Callable[..., Loop]) -> None:
    values, maml = trained(build, "maml", 200_000)
    adapted, successes = score(values, maml)
    before, lucky = score(values, Unadapted(maml))
    joint, _ = score(*trained(build, "ppo", 200_000, **{"algo.loop.rollout_steps": 100}))
    print(f"adapted {adapted:.2f} ({successes:.2f}), before {before:.2f} ({lucky:.2f}), joint {joint:.2f}")
    assert adapted > -4.5
    assert adapted > before + 2.5 and adapted > joint + 2.5
    assert successes > 2 * lucky
