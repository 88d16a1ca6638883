"""Skills of a point in the plane, learned without reward: they are distinguishable and end in different places."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from toys import put

from rlrun.config.jobs import jobs
from rlrun.core.loop import Loop

Build = Callable[..., Loop]

SETTINGS = {
    "env.num_envs": 16, "network.hidden": [64, 64], "algo.loop.warmup_steps": 1000, "algo.loop.updates_per_step": 0.25,
    "algo.loop.batch_size": 128, "algo.buffer.capacity": 10_000, "algo.actor_learning_rate": 1e-3,
    "env.task_kwargs": {}, "trainer.total_steps": 24_000,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_four_skills_are_told_apart_and_end_apart(seed: int, build: Build) -> None:
    loop: Any = build(put(jobs(["algo=diayn", "env=PointGoal"])[0].values, SETTINGS | {"seed": seed}))
    right, metrics = [], {}
    while loop.steps < loop.horizon:
        metrics = loop.tick() or metrics
        right.append(metrics.get("loss/diayn_accuracy", torch.zeros(())))
    ends, skills = ends_of(loop)
    centres = torch.stack([ends[skills == skill].mean(0) for skill in range(4)])
    between = torch.pdist(centres).min().item()
    within = max((ends[skills == skill] - centres[skill]).norm(dim=1).mean().item() for skill in range(4))
    accuracy = torch.stack(right[-100:]).mean().item()
    print(f"accuracy {accuracy:.3f}, between {between:.2f}, within {within:.2f}")
    assert accuracy > 0.9
    assert between > 3 * within


def ends_of(loop: Any, episodes: int = 20) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns final positions of exploring episodes, and their skills."""
    ends, skills = [], []
    while len(ends) < episodes * 16:
        (step,) = loop.collect()
        over = step["terminated"] | step["truncated"]
        ends += [*step["next_obs"][over]]
        skills += [*step["carry.goal"][over]]
    return torch.stack(ends), torch.stack(skills)
