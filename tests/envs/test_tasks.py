"""Families of tasks: every environment has its own arguments, equal for equal seeds."""

from collections.abc import Callable

import pytest

from rlrun.envs.vector import VectorEnv

RANGES = {"x": [-0.5, 0.5], "y": [1, 2]}


def goals(env: VectorEnv) -> list[list[float]]:
    assert env.pool is not None
    return [slot.unwrapped.goal.tolist() for slot in env.pool.slots]  # type: ignore[attr-defined]


def test_task_kwargs_are_drawn_per_environment_within_ranges(make_env: Callable[..., VectorEnv]) -> None:
    drawn, same, other = (goals(make_env("rlrun/PointGoal-v0", 50, seed, task_kwargs=RANGES)) for seed in (0, 0, 1))
    assert drawn == same != other
    assert len({tuple(goal) for goal in drawn}) == 50
    assert all(-0.5 <= x <= 0.5 and 1 <= y <= 2 for x, y in drawn)
    assert min(x for x, _ in drawn) < -0.3 and max(x for x, _ in drawn) > 0.3
    assert goals(make_env("rlrun/PointGoal-v0", 5, 0, task_kwargs=RANGES)) == drawn[:5]


def test_task_kwargs_are_fixed_by_the_instance_seed(make_env: Callable[..., VectorEnv]) -> None:
    one, two = (make_env("rlrun/PointGoal-v0", 4, seed, task_kwargs=RANGES, instance_seed=3) for seed in (0, 1))
    assert goals(one) == goals(two)


def test_tasks_are_equal_without_task_kwargs(make_env: Callable[..., VectorEnv]) -> None:
    assert goals(make_env("rlrun/PointGoal-v0", 2, kwargs={"x": 0.1, "y": 0.2})) == [[0.1, 0.2]] * 2


def test_a_point_that_reaches_its_goal_succeeds(make_env: Callable[..., VectorEnv]) -> None:
    import torch

    env = make_env("rlrun/PointGoal-v0", 1, kwargs={"x": 0.3, "y": 0.0})
    env.reset()
    steps = [env.step(torch.tensor([[1.0 if t < 3 else 0.0, 0.0]])) for t in range(20)]
    assert [step.reward.item() for step in steps[:4]] == pytest.approx([-0.2, -0.1, 0.0, 0.0], abs=1e-6)
    assert steps[-1].truncated.item() and not steps[-1].terminated.item()
    assert steps[-1].info["success"] == {0: True}
