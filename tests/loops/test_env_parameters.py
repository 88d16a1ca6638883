"""Environments have the scheduled values of the present step after every tick, whatever the loop."""

from collections.abc import Callable
from typing import Any

import pytest
from toys import put, toy

from rlrun.config.jobs import jobs
from rlrun.core.loop import Loop

Build = Callable[..., Loop]
STEPS = [*range(0, 400, 2)]
SCHEDULE = {"gravity": {"by": "steps", "values": [10 - step / 100 for step in STEPS], "at": STEPS}}
POINT = {"env.id": "rlrun/PointGoal-v0", "env.num_envs": 3, "env.max_episode_steps": 5}


@pytest.mark.parametrize(
    ("algo", "changes"),
    [
        *((algo, {}) for algo in ("dqn", "ppo", "vpg", "cem", "maml")),
        *((algo, {"algo.loop.shards": 2}) for algo in ("vpg", "cem", "maml")),
    ],
)
def test_environments_follow_their_schedule_in_every_loop(algo: str, changes: dict[str, int], build: Build) -> None:
    loop: Any = build(toy(algo, **{"env.schedule": SCHEDULE}, **changes))
    given: list[dict[str, float]] = []
    plain = loop.env.set_parameters
    loop.env.set_parameters = lambda values: given.append(values) or plain(values)
    values = []
    for _ in range(4):
        loop.tick()
        assert given[-1] == loop.env_parameters()
        values.append(given[-1]["gravity"])
    assert values == sorted(values, reverse=True) and values[-1] < values[0]


def test_episodes_leave_the_streams_of_agent_and_addons_whole(build: Build) -> None:
    loop: Any = build(toy("vpg"))
    loop.tick()
    assert not any(stream.rows for stream in loop.collector._streams())


def test_agents_learn_from_relabelled_tasks(build: Build) -> None:
    loop: Any = build(put(toy("maml"), POINT))
    loop.addons.relabel = lambda batch: batch | {"seen": batch["weight"]}
    loop.tick()
    assert "seen" in loop.batch["explored"] and "seen" in loop.batch["adapted"]


def test_demonstrations_begin_without_rows_and_data_sets_of_before(build: Build) -> None:
    values = jobs(["algo=ppo_demos", "env=DeepSea", "preset=none", "algo.loop.rollout_steps=8"])[0].values
    loop: Any = build(values)
    other: Any = build(values)
    loop.tick()
    loop.exchange.read = ["more-v0"]
    other.set_extra_state(loop.get_extra_state())
    assert other.exchange.read == ["more-v0"] and any(other.episodes.open)
    other.begin()
    assert other.exchange.read == [] and not any(other.episodes.open)
