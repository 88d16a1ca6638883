"""Off-policy loop in iterations: when updates are made, and how the buffer is filled first."""

from collections.abc import Callable
from typing import Any

import pytest
from toys import Values, put, toy, train

from rlrun.cli import main
from rlrun.config.jobs import jobs
from rlrun.core.loop import Loop
from rlrun.testing import check_resuming

Build = Callable[..., Loop]
LENGTH = 20  # of every episode of the toy environment


def in_episodes(**changes: Any) -> Values:
    """Returns a small run of SAC on Pendulum, whose episodes have LENGTH steps, with settings of the loop."""
    loop = {
        "name": "offpolicy_episodes", "min_steps": None, "min_rollouts": 1, "updates_per_iteration": None,
        "warmup_steps": 8, "warmup_policy": "random", "refill_policy": "agent", "start_update": None,
        "batch_size": 8, "lag": 0,
    }  # fmt: skip
    return toy("sac", **{"env.num_envs": 1, "algo.buffer.capacity": 100, "algo.loop": loop | changes})


def blocks(loop: Loop, steps: int) -> list[tuple[int, int]]:
    """Returns (step, number of updates) of every tick with updates, until the loop has taken so many steps."""
    found = []
    while loop.steps < steps:
        before = loop.updates
        loop.tick()
        if loop.updates > before:
            found.append((loop.steps, loop.updates - before))
    return found


@pytest.mark.parametrize(
    ("minimums", "expected"),
    [
        ({"min_rollouts": 1}, [20, 40, 60, 80, 100]),
        ({"min_rollouts": 2}, [40, 80]),
        ({"min_rollouts": None, "min_steps": 25}, [40, 80]),
        ({"min_rollouts": 3, "min_steps": 25}, [60]),
        ({"min_rollouts": 1, "min_steps": 33}, [60, 100]),
    ],
)
def test_iterations_end_with_the_episode_that_reaches_both_minimums(
    minimums: Values, expected: list[int], build: Build
) -> None:
    """The 8 steps of the warm-up do not count: 12 steps of the first episode do."""
    loop = build(in_episodes(updates_per_iteration=3, **minimums))
    assert blocks(loop, 100) == [(step, 3) for step in expected]


def test_minimum_of_an_iteration_follows_its_schedule(build: Build) -> None:
    values = in_episodes(min_rollouts=None, min_steps=5, updates_per_iteration=3)
    values["algo"]["schedule"] = {"loop": {"min_steps": {"piecewise": {"values": [25.5], "at": [30]}}}}
    assert blocks(build(values), 120) == [(step, 3) for step in (20, 40, 80, 120)]


@pytest.mark.parametrize(
    ("settings", "updates"),
    [
        ({"min_rollouts": 3}, 3),
        ({"min_rollouts": 3, "updates_per_iteration": "episodes"}, 4),  # both episodes end at once
        ({"min_rollouts": None, "min_steps": 41}, 3),
        ({"min_rollouts": 1, "min_steps": 60}, 3),
    ],
)
def test_updates_of_an_iteration_follow_its_minimums_or_its_episodes(
    settings: Values, updates: int, build: Build
) -> None:
    loop = build(put(in_episodes(**settings), {"env.num_envs": 2}))
    assert blocks(loop, 160) == [(80, updates), (160, updates)]


def test_updates_of_scheduled_minimums_are_rounded_up(build: Build) -> None:
    values = in_episodes(min_rollouts=1)
    values["algo"]["schedule"] = {"loop": {"min_rollouts": {"piecewise": {"values": [1.5], "at": [30]}}}}
    assert blocks(build(values), 120) == [(20, 1), (40, 1), (80, 2), (120, 2)]


def test_minimum_of_steps_without_a_time_limit_needs_a_number_of_updates(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["algo=dqn", "env=CliffWalking", "algo.loop=offpolicy_episodes", "algo.loop.min_steps=9"]
    assert main(["train", *words, "logger=[]", "--dry-run"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: algo.loop.updates_per_iteration=null: divides min_steps by the time limit of the environment, "
        "which has none; set a number, episodes, or env.max_episode_steps"
    ]


def test_lag_makes_the_updates_of_an_iteration_one_step_later(build: Build) -> None:
    loop = build(in_episodes(updates_per_iteration=3, lag=1))
    assert blocks(loop, 50) == [(21, 3), (41, 3)]


def test_start_update_delays_the_first_iteration(build: Build) -> None:
    loop = build(in_episodes(start_update=30, min_steps=11, updates_per_iteration=1))
    assert blocks(loop, 80) == [(60, 1), (80, 1)], "10 steps of the second episode count"


@pytest.mark.parametrize(("warmup", "expected"), [(None, 100), (0, 8), (50, 50), (1000, 100)])
def test_warm_up_is_between_a_batch_and_the_capacity(warmup: int | None, expected: int, build: Build) -> None:
    assert build(in_episodes(warmup_steps=warmup)).warmup_steps == expected  # type: ignore[attr-defined]


def test_refill_fills_the_buffer_before_the_next_iteration(build: Build) -> None:
    loop: Any = build(in_episodes(updates_per_iteration=3, warmup_steps=30))
    train(loop, 3)
    assert loop.steps == 40
    loop.refill()
    assert blocks(loop, 100) == [(80, 3), (100, 3)]


def test_iterations_resume_bit_for_bit_in_the_middle_of_an_episode(build: Build) -> None:
    values = in_episodes(updates_per_iteration=2, min_rollouts=2)
    loop = build(values)
    while loop.steps < 50:
        loop.tick()
    check_resuming(loop, build(values, begin=False))


@pytest.mark.parametrize("algo", ["sac", "td3", "dqn", "prioritized_dqn"])
def test_every_replay_algorithm_accepts_the_loop(algo: str) -> None:
    env = "CartPole" if "dqn" in algo else "Pendulum"
    (job,) = jobs([f"algo={algo}", f"env={env}", "algo.loop=offpolicy_episodes", "algo.loop.updates_per_iteration=50"])
    assert job.values["algo"]["loop"]["updates_per_iteration"] == 50
