"""Skills of a point in the plane, learned without reward: they are distinguishable and end in different places."""

import math
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

CONTINUOUS = {"network.hidden": [128, 128], "algo.intrinsic.learning_rate": 3e-3, "trainer.total_steps": 48_000}


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


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_continuous_skills_end_in_places_that_tell_them(seed: int, build: Build) -> None:
    """As much as four skills that are distinguished without an error, log 4 = 1.386 nats; untrained ones below 0.2."""
    words = ["algo=diayn", "env=PointGoal", "algo.goals=box"]
    loop: Any = build(put(jobs(words)[0].values, SETTINGS | CONTINUOUS | {"seed": seed}))
    untrained = information(*ends_of(loop))
    while loop.steps < loop.horizon:
        loop.tick()
    trained = information(*ends_of(loop, 60))
    print(f"untrained {untrained:.3f}, trained {trained:.3f} nats")
    assert untrained < 0.2 and trained > math.log(4)


def information(ends: torch.Tensor, skills: torch.Tensor) -> float:
    """Returns a lower bound of the mutual information of final positions and skills in [-1, 1]^2, in nats: the entropy
    of the skills minus that of normal errors of a linear regression, which are those of the half that it has not
    seen."""
    half = len(ends) // 2
    inputs = torch.cat([ends, torch.ones(len(ends), 1)], 1).double()
    weights = torch.linalg.lstsq(inputs[:half], skills[:half].double()).solution
    errors = (skills[half:] - inputs[half:] @ weights).square().mean(0)
    return 2 * math.log(2) - 0.5 * float((2 * math.pi * math.e * errors).log().sum())
