"""Families of tasks: every environment has its own arguments, equal for equal seeds, and draws new ones on request."""

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch

from rlrun.core.random import sequence
from rlrun.envs.making.tasks import Tasks
from rlrun.envs.stepping.vector import VectorEnv
from rlrun.errors import ConfigError, RunError

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
    env = make_env("rlrun/PointGoal-v0", 1, kwargs={"x": 0.3, "y": 0.0})
    env.reset()
    steps, events = zip(*(env.step(torch.tensor([[1.0 if t < 3 else 0.0, 0.0]])) for t in range(20)), strict=True)
    assert [step["reward"].item() for step in steps[:4]] == pytest.approx([-0.2, -0.1, 0.0, 0.0], abs=1e-6)
    assert steps[-1]["truncated"].item() and not steps[-1]["terminated"].item()
    assert events[-1].episodes[0].success == 1.0


def steps(env: VectorEnv, count: int) -> list[list[float]]:
    return [env.step(torch.full((env.num_envs, 2), 0.05))[0]["reward"].tolist() for _ in range(count)]


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_draw_tasks_gives_every_environment_a_new_goal(backend: str, make_env: Callable[..., VectorEnv]) -> None:
    def rewards(draws: int) -> list[list[float]]:
        env = make_env("rlrun/PointGoal-v0", 2, task_kwargs=RANGES, backend=backend)
        env.reset()
        for _ in range(draws):
            steps(env, 3)
            env.draw_tasks()
            env.reset()
        (first,) = steps(env, 1)
        goals = [np.array([task["x"], task["y"]]) for task in env.tasks.current()]
        assert first == pytest.approx([-np.linalg.norm(goal - 0.005) for goal in goals])
        return [first]

    assert rewards(2) == rewards(2)
    assert len({value for draws in range(3) for value in rewards(draws)[0]}) == 6


def test_draw_tasks_without_ranges_changes_nothing(make_env: Callable[..., VectorEnv]) -> None:
    env = make_env("rlrun/PointGoal-v0", 2)
    env.reset()
    before = copy.deepcopy(env.get_extra_state())
    env.draw_tasks()
    assert str(env.get_extra_state()) == str(before)


def test_restored_environments_have_the_tasks_of_the_snapshot(make_env: Callable[..., VectorEnv]) -> None:
    one, other = (make_env("rlrun/PointGoal-v0", 2, task_kwargs=RANGES) for _ in range(2))
    one.reset()
    for _ in range(2):
        one.draw_tasks()
        one.reset()
    steps(one, 3)
    tree = copy.deepcopy(one.get_extra_state())
    expected = steps(one, 30)
    other.set_extra_state(tree)
    assert goals(other) == goals(one)
    assert steps(other, 30) == expected
    fresh = make_env("rlrun/PointGoal-v0", 2, task_kwargs=RANGES)
    fresh.reset()
    first = copy.deepcopy(fresh.get_extra_state())
    other.set_extra_state(first)
    assert goals(other) == goals(fresh) != goals(one), "a snapshot from before the first draw"


def test_tasks_of_training_and_evaluations_differ() -> None:
    drawn = set()
    for name in ("env", "eval.1000", "eval.2000"):
        tasks = Tasks(RANGES, sequence(0, name), 100)
        for tasks.number in range(50):
            drawn |= {task["x"] for task in tasks.current()}
    assert len(drawn) == 3 * 50 * 100


def test_a_task_that_changes_the_spaces_is_refused(make_env: Callable[..., VectorEnv]) -> None:
    env = make_env("rlrun/DeepSea-v0", 1, kwargs={"size": 4})
    env.reset()
    assert env.pool is not None
    env.pool.set_tasks([{"size": 5}])
    with pytest.raises(RunError, match="its spaces, its reward shape or its reports differ in the task"):
        env.reset()


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_every_environment_gets_its_index_as_an_argument(backend: str, make_env: Callable[..., VectorEnv]) -> None:
    one = make_env("rlrun/PointGoal-v0", 3, kwargs={"y": 9.0}, index_kwarg="x", backend=backend)
    same = [make_env("rlrun/PointGoal-v0", 1, kwargs={"x": float(x), "y": 9.0}, selftest="off") for x in range(3)]
    one.reset()
    for env in same:
        env.reset()
    drive = torch.tensor([[0.05, 0.0]])
    rewards = one.step(drive.repeat(3, 1))[0]["reward"].tolist()
    assert rewards == [env.step(drive)[0]["reward"].item() for env in same]
    assert len({*rewards}) == 3


def test_index_is_kept_when_tasks_are_drawn(make_env: Callable[..., VectorEnv]) -> None:
    env = make_env("rlrun/PointGoal-v0", 3, task_kwargs={"y": [1, 2]}, index_kwarg="x")
    before = goals(env)
    env.draw_tasks()
    after = goals(env)
    assert [x for x, _ in before] == [x for x, _ in after] == [0.0, 1.0, 2.0]
    assert [y for _, y in before] != [y for _, y in after]


@pytest.mark.parametrize("given", [{"kwargs": {"x": 0.1}}, {"task_kwargs": {"x": [0, 1]}}])
def test_index_that_is_another_argument_too_is_refused(given: dict, make_env: Callable[..., VectorEnv]) -> None:
    with pytest.raises(ConfigError, match=r"env\.index_kwarg=x: env\.kwargs or env\.task_kwargs set it too"):
        make_env("rlrun/PointGoal-v0", 2, index_kwarg="x", **given)


def test_index_without_such_an_argument_is_refused_in_one_line(make_env: Callable[..., VectorEnv]) -> None:
    line = r"^env\.index_kwarg=worker: rlrun/PointGoal-v0 has no constructor argument of this name$"
    with pytest.raises(ConfigError, match=line):
        make_env("rlrun/PointGoal-v0", 2, index_kwarg="worker")
