"""Off-policy loop in iterations: when updates are made, and how the buffer is filled first."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from toys import Values, equal, put, toy, train, weights

from rlrun.cli import main
from rlrun.config.jobs import jobs
from rlrun.core.loop import Loop
from rlrun.errors import ConfigError
from rlrun.testing import check_resuming
from rlrun.types import Batch

Build = Callable[..., Loop]
LENGTH = 20  # of every episode of the toy environment


def in_episodes(**changes: Any) -> Values:
    """Returns a small run of SAC on Pendulum, whose episodes have LENGTH steps, with settings of the loop."""
    loop = {
        "name": "offpolicy_episodes", "min_steps": None, "min_rollouts": 1, "updates_per_iteration": None,
        "warmup_steps": 8, "warmup_policy": "random", "refill_policy": "agent", "start_update": None,
        "batch_size": 8, "lag": 0, "complete": False,
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


@pytest.mark.parametrize("complete", [False, True])
def test_iterations_resume_bit_for_bit_in_the_middle_of_an_episode(complete: bool, build: Build) -> None:
    values = in_episodes(updates_per_iteration=2, min_rollouts=2, complete=complete)
    values["env"]["num_envs"] = 1 + complete
    loop = build(values)
    while loop.steps < 50:
        loop.tick()
    check_resuming(loop, build(values, begin=False))


def stored(loop: Any) -> Batch:
    """Returns all that replay holds, oldest first."""
    batch: Batch = loop.buffer.read(torch.arange(*loop.buffer.span))
    return {key: value for key, value in batch.items() if key != "index"}


def complete(algo: str, num_envs: int, build: Build, updates: int = 6, **changes: Any) -> Any:
    """Returns a loop of complete episodes after its updates."""
    env = jobs([f"algo={algo}", f"env={'CartPole' if 'dqn' in algo else 'Pendulum'}", "preset=none"])[0].values["env"]
    loop = in_episodes(complete=True, **{"min_rollouts": 3, "min_steps": 30, "warmup_steps": 20, **changes})
    values = toy(algo, **{"env": env, "algo.buffer.capacity": 400, "algo.loop": loop["algo"]["loop"]})
    if "dqn" in algo:  # without schedules over steps, which count those that are discarded
        values["algo"]["epsilon"] = 0.5
    if algo == "prioritized_dqn":
        values["algo"]["buffer"]["beta"] = 0.4
    return train(build(put(values, {"env.num_envs": num_envs, "env.max_episode_steps": 17})), updates)


@pytest.mark.parametrize("algo", ["dqn", "prioritized_dqn", "sac"])
def test_the_number_of_environments_changes_nothing_in_what_is_collected_into_replay(algo: str, build: Build) -> None:
    """Nor in what is learned from it, except that SAC's actions of a batch may be rounded otherwise."""
    one, *others = (complete(algo, num_envs, build) for num_envs in (1, 2, 3, 8))
    assert 60 < len(one.buffer) < 400 and one.updates == 6 and one.kept == len(one.buffer)
    for other in others:
        assert other.buffer.spec.num_envs == 1 and other.steps > one.steps
        if algo == "sac":
            for key, value in stored(one).items():
                torch.testing.assert_close(stored(other)[key], value, rtol=1e-3, atol=1e-3)
        else:
            assert equal(stored(one), stored(other)) and equal(weights(one), weights(other))


def test_complete_iterations_fill_the_buffer_then_wait_for_start_update(build: Build) -> None:
    loop = build(in_episodes(complete=True, start_update=50, min_steps=30, warmup_steps=30))
    found = []
    for _ in range(4):
        loop.tick()
        found.append((loop.kept, loop.steps, loop.updates))  # type: ignore[attr-defined]
    assert found == [(40, 40, 0), (60, 60, 0), (100, 100, 2), (140, 140, 4)]


def test_complete_iterations_discard_episodes_beyond_their_minimum(build: Build) -> None:
    minimum = {"min_rollouts": None, "min_steps": 21, "updates_per_iteration": "episodes"}
    loop: Any = build(put(in_episodes(complete=True, warmup_steps=0, **minimum), {"env.num_envs": 3}))
    loop.tick()
    assert (loop.kept, loop.steps, loop.updates) == (20, 60, 0), "a batch fills the buffer"
    loop.tick()
    assert (loop.kept, loop.steps, loop.updates) == (60, 120, 2)
    batch = stored(loop)
    episodes = batch["obs"].split(LENGTH)
    assert torch.equal(episodes[0][1:], batch["next_obs"][: LENGTH - 1])
    assert len({tuple(episode[0].tolist()) for episode in episodes}) == 3, "new ones in every iteration"


def test_refill_fills_the_buffer_with_complete_episodes(build: Build) -> None:
    loop: Any = build(in_episodes(complete=True, warmup_steps=30))
    train(loop, 1)
    loop.refill()
    loop.tick()
    assert (loop.kept, len(loop.buffer), loop.updates) == (100, 40, 1)
    loop.tick()
    assert (loop.kept, len(loop.buffer), loop.updates) == (120, 60, 2)


def test_complete_iterations_store_executed_actions(build: Build) -> None:
    values = put(in_episodes(complete=True, warmup_policy="agent"), {"env.num_envs": 2})
    loop: Any = build(values)
    loop.agent.act = lambda obs, carry, explore: (torch.full((2, 1), 3.0), {})
    added, add = [], loop.buffer.add
    loop.buffer.add = lambda step: added.append(step) or add(step)
    loop.tick()
    assert len(loop.buffer) == LENGTH and (stored(loop)["action"] == 1).all()
    assert all(isinstance(entry, torch.Tensor) for step in added for entry in step.values())


def test_complete_iterations_set_parameters_of_environments_between_them(build: Build) -> None:
    schedule = {"g": {"by": "steps", "values": [1.0, 5.0], "at": [0, 30]}}
    loop: Any = build(put(in_episodes(complete=True), {"env.schedule": schedule}))
    passed: list[dict[str, float]] = []
    loop.env.set_parameters = passed.append
    for _ in range(3):
        loop.tick()
    assert [parameters["g"] for parameters in passed] == [1.0, 5.0, 5.0]


def test_complete_iterations_have_no_lag(build: Build) -> None:
    with pytest.raises(ConfigError, match=r"algo.loop.lag=1: .* complete=true"):
        build(in_episodes(complete=True, lag=1))


def test_complete_iterations_store_stacked_frames(build: Build) -> None:
    """The frames of another environment, or of a discarded episode, are in no stack."""
    frames = Path(__file__).parents[1] / "frames_env.py"
    words = ["algo=dqn", f"env={frames}:Frames", "preset=none", "env.wrappers.frame_stack.stack=2", "network=cnn",
             "network.convolutions=[[2,3,2]]", "algo.loop=offpolicy_episodes", "algo.loop.complete=true",
             "algo.loop.warmup_steps=30", "env.max_episode_steps=9", "algo.buffer.capacity=99"]  # fmt: skip
    found = []
    for num_envs in (1, 3):
        loop: Any = build(jobs([*words, f"env.num_envs={num_envs}"])[0].values)
        loop.tick()
        found.append(stored(loop))
    assert equal(*found) and found[0]["obs"].shape[1] == 2


@pytest.mark.parametrize("algo", ["sac", "td3", "dqn", "prioritized_dqn"])
def test_every_replay_algorithm_accepts_the_loop(algo: str) -> None:
    env = "CartPole" if "dqn" in algo else "Pendulum"
    (job,) = jobs([f"algo={algo}", f"env={env}", "algo.loop=offpolicy_episodes", "algo.loop.updates_per_iteration=50"])
    assert job.values["algo"]["loop"]["updates_per_iteration"] == 50
