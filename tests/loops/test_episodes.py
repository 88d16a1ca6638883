"""Whole episodes: their number, and their independence of the number of environments."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from toys import put, toy

from rlrun.config.jobs import jobs
from rlrun.core.loop import Loop
from rlrun.errors import ConfigError
from rlrun.indexed import dense
from rlrun.types import Batch

Build = Callable[..., Loop]


def collected(build: Build, ticks: int = 1, env: str = "CartPole", **changes: Any) -> list[Batch]:
    """Returns the rollouts of an agent that never learns."""
    values = put(toy("vpg"), {"env": jobs(["algo=vpg", f"env={env}", "preset=none"])[0].values["env"]})
    loop = build(put(values, changes))
    loop.agent.update = lambda batch, ctx: {}  # type: ignore[method-assign]
    given = []
    for _ in range(ticks):
        loop.tick()
        assert loop.batch is not None
        given.append(loop.batch)
    return given


@pytest.mark.parametrize("env", ["CartPole", "Pendulum"])
@pytest.mark.parametrize("least", [{"min_steps": 70, "min_rollouts": None}, {"min_steps": 30, "min_rollouts": 5}])
def test_the_number_of_environments_changes_nothing_in_what_is_collected(
    env: str, least: dict[str, Any], build: Build
) -> None:
    given = {"algo.loop.min_steps": least["min_steps"], "algo.loop.min_rollouts": least["min_rollouts"]}
    given["env.max_episode_steps"] = 17
    one, *others = (collected(build, 3, env, **given, **{"env.num_envs": n}) for n in (1, 2, 3, 8))
    for other in others:
        for first, second in zip(map(dense, one), map(dense, other), strict=True):
            for key in ("obs", "next_obs", "action", "reward", "terminated", "truncated", "weight", "first"):
                exact = env == "CartPole"  # a batched product may round the mean of a continuous action otherwise
                torch.testing.assert_close(first[key], second[key], **({"rtol": 0, "atol": 0} if exact else {}))
            torch.testing.assert_close(first["log_prob"], second["log_prob"])


def test_noise_that_is_correlated_in_time_does_not_depend_on_the_number_of_environments(build: Build) -> None:
    noise = {"name": "ou", "mean": 0.0, "std": 0.2, "theta": 0.15, "dt": 1.0, "initial": 0.5, "random_action": 0.0}
    given = {"algo.noise": noise, "algo.loop.min_steps": 40, "env.max_episode_steps": 9}
    one, many = (collected(build, 2, "Pendulum", **given, **{"env.num_envs": n}) for n in (1, 3))
    for first, second in zip(one, many, strict=True):
        for key in ("carry.noise", "action", "log_prob"):
            torch.testing.assert_close(first[key], second[key])


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_workers_change_no_bit(backend: str, build: Build) -> None:
    given = {"algo.loop.min_steps": 40, "env.num_envs": 3, "env.max_episode_steps": 15}
    (here,) = collected(build, **given)
    (there,) = collected(build, **given, **{"env.backend": backend})
    assert all(torch.equal(here[key], there[key]) for key in here)


@pytest.mark.parametrize(("min_steps", "episodes"), [(1, 1), (5, 1), (6, 2), (13, 3)])
@pytest.mark.parametrize("num_envs", [1, 4])
def test_as_few_episodes_as_are_enough(min_steps: int, episodes: int, num_envs: int, build: Build) -> None:
    given = {"algo.loop.min_steps": min_steps, "env.num_envs": num_envs, "env.max_episode_steps": 5}
    (batch,) = collected(build, env="Pendulum", **given)
    assert batch["weight"].shape == (5, episodes) and batch["weight"].all()
    assert batch["first"][0].all() and not batch["first"][1:].any()
    assert batch["truncated"][-1].all() and not batch["truncated"][:-1].any()


def test_minimum_of_a_rollout_follows_its_schedule_from_one_update_to_the_next(build: Build) -> None:
    schedule = {"loop": {"min_steps": {"piecewise": {"values": [6.5], "at": [5]}}}}
    given = {"algo.loop.min_steps": 5, "algo.schedule": schedule, "env.num_envs": 1, "env.max_episode_steps": 5}
    batches = collected(build, ticks=4, env="Pendulum", **given)
    assert [batch["weight"].shape[1] for batch in batches] == [1, 1, 2, 2]


def test_shorter_episodes_end_in_rows_that_count_nowhere(build: Build) -> None:
    (batch,) = collected(build, **{"algo.loop.min_rollouts": 6, "env.max_episode_steps": 30})
    rows = batch["weight"].sum(0).long()
    assert len(rows) == 6 and len(set(rows.tolist())) > 1 and rows.max() == len(batch["weight"])
    done = batch["terminated"] | batch["truncated"]
    for episode, length in enumerate(rows.tolist()):
        assert batch["weight"][:length, episode].all() and not batch["weight"][length:, episode].any()
        assert done[length - 1, episode] and not done[: length - 1, episode].any()
        assert torch.equal(batch["obs"][1:length, episode], batch["next_obs"][: length - 1, episode])


def test_episodes_are_new_ones_in_every_rollout(build: Build) -> None:
    first, second = collected(build, 2, **{"algo.loop.min_rollouts": 3})
    starts = torch.cat([first["obs"][0], second["obs"][0]])
    assert len({tuple(row) for row in starts.tolist()}) == len(starts)


def test_one_minimum_must_be_given(build: Build) -> None:
    with pytest.raises(ConfigError, match="min_steps and min_rollouts"):
        build(toy("vpg", **{"algo.loop.min_steps": None}))
