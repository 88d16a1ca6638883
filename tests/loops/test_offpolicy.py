"""Off-policy: the number of due updates, the stored rows, and the actions of the warm-up."""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from gymnasium import spaces
from toys import equal, toy, train, weights

from rlrun.core.loop import Loop
from rlrun.core.random import Stream
from rlrun.envs.stepping.random_actions import sampled
from rlrun.testing import save
from rlrun.types import Spec

Build = Callable[..., Loop]
HYBRID = {
    "name": "hybrid", "warmup_steps": 8, "warmup_policy": "random", "refill_policy": "agent", "start_update": None,
    "updates_per_step": 0.5, "update_every": 1, "batch_size": 8, "data": None, "data_steps": 8, "data_env": "same",
    "online_after": 2, "online_every": 1, "lag": 0, "shards": None, "shard_steps": None,
}  # fmt: skip


@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("per_step", [1.0, 0.25, 0.3, 2.0])
@pytest.mark.parametrize("warmup", [0, 10])
def test_updates_keep_pace_with_the_steps_since_the_warm_up(
    num_envs: int, per_step: float, warmup: int, build: Build
) -> None:
    changes = {"env.num_envs": num_envs, "algo.loop.updates_per_step": per_step, "algo.loop.warmup_steps": warmup}
    loop = build(toy("dqn", **changes))
    for tick in range(1, 25):
        loop.tick()
        assert loop.steps == tick * num_envs
        assert loop.updates == int(max(0, loop.steps - warmup) * Fraction(str(per_step)))


@pytest.mark.parametrize(("algo", "is_told"), [("crossq", True), ("sac", False)])
@pytest.mark.parametrize("kind", ["offpolicy", "hybrid"])
def test_priorities_without_errors_are_announced_once(algo: str, kind: str, is_told: bool, build: Build) -> None:
    buffer = {"name": "prioritized", "alpha": 0.6, "beta": 0.4, "divide_weights": True, "epsilon": 1e-6}
    changes = {f"algo.buffer.{key}": value for key, value in buffer.items()}
    if kind == "hybrid":
        pytest.importorskip("minari")
        changes |= {"algo.loop": HYBRID}
    loop = train(build(toy(algo, **changes)), 5)
    line = "algo.buffer=prioritized: algo=crossq returns no errors of its transitions, so priorities stay equal and "
    assert loop.notices == is_told * [line + "transitions are drawn uniformly"]


def test_updates_may_come_in_bursts(build: Build) -> None:
    """Like a bandit agent with 20 updates after every 20 pulls, from pull 10 on."""
    changes = {"env.num_envs": 2, "algo.loop.warmup_steps": 10, "algo.loop.updates_per_step": 1.0}
    loop = build(toy("dqn", **changes, **{"algo.loop.update_every": 20}))
    done = []
    for _ in range(30):
        loop.tick()
        done.append(loop.updates)
    assert done == 14 * [0] + 10 * [20] + 6 * [40]


def test_with_lag_updates_are_made_while_the_step_is_under_way_and_without_it(build: Build) -> None:
    loop = build(toy("dqn", **{"algo.loop.lag": 1, "algo.loop.warmup_steps": 4, "algo.loop.updates_per_step": 0.5}))
    events: list[tuple[str, int]] = []

    def record(part: Any, name: str, count: Callable[[], int]) -> None:
        call = getattr(part, name)
        setattr(part, name, lambda *given: events.append((name, count())) or call(*given))

    record(loop.env.pool, "begin", lambda: loop.steps)
    record(loop.env.pool, "step", lambda: loop.steps)
    record(loop.agent, "update", lambda: len(loop.buffer))
    for _ in range(4):  # of 2 steps each; no updates are due for the first 4 steps
        metrics = loop.tick()
    assert events == [
        ("begin", 0), ("step", 0), ("begin", 2), ("step", 2), ("begin", 4), ("step", 4),
        ("begin", 6), ("update", 6), ("step", 6),
    ]  # fmt: skip
    assert loop.steps == len(loop.buffer) == 8
    assert metrics["loss/lag"] == 1, "the step just taken was chosen one update ago"


@pytest.mark.parametrize(("algo", "changes"), [("sac", {}), ("prioritized_dqn", {"algo.epsilon.start": 0.0})])
def test_with_lag_workers_change_no_bit(algo: str, changes: dict[str, object], build: Build) -> None:
    here, there, without = (
        train(build(toy(algo, **{"env.backend": backend, "algo.loop.lag": lag, **changes})), 20)
        for backend, lag in (("sync", 1), ("async", 1), ("sync", 0))
    )
    assert equal(weights(here), weights(there)) and here.steps == there.steps
    assert not equal(weights(here), weights(without))


def test_replay_is_laid_out_by_timestep_between_exchanges(build: Build, tmp_path: Path) -> None:
    """An agent that learns nothing collects the same data, whenever it is exchanged for new weights."""
    digests = []
    for ticks, steps in ((16, None), (4 + 4, 3)):
        values = toy("dqn", **{"algo.n_step": 3, "env.max_episode_steps": 5, "algo.loop.shard_steps": steps})
        loop = build(values)
        loop.agent.update = lambda batch, ctx: {}  # type: ignore[method-assign]
        for _ in range(ticks):
            loop.tick()
        digests.append(save(loop, tmp_path / str(ticks)).digest)
        assert loop.steps == 32 and loop.updates == 12
    assert digests[0] == digests[1]


def test_warm_up_ends_between_exchanges_and_updates_begin_with_one(build: Build) -> None:
    changes = {"algo.loop.warmup_steps": 4, "algo.loop.start_update": 12, "algo.loop.shard_steps": 3}
    loop = build(toy("dqn", **changes))
    found = []
    for _ in range(5):
        loop.tick()
        found.append((loop.steps, loop.updates))
    assert found == [(2, 0), (4, 0), (10, 0), (16, 2), (22, 5)]  # two environments, half an update for each transition


def test_what_is_owed_waits_until_something_can_be_sampled(build: Build) -> None:
    loop = build(toy("dqn", **{"algo.loop.warmup_steps": 0, "algo.loop.updates_per_step": 1.0}))
    can_sample = False
    loop.buffer.__class__ = type("Waiting", (type(loop.buffer),), {"__len__": lambda self: 8 if can_sample else 0})
    loop.tick()
    assert loop.updates == 0
    can_sample = True
    loop.tick()
    assert loop.updates == 4


def test_random_warmup_does_not_call_the_agent(build: Build) -> None:
    loop = build(toy("sac", **{"algo.loop.warmup_steps": 12}))
    calls: list[int] = []
    act = loop.agent.act
    loop.agent.act = lambda *args, **given: calls.append(loop.steps) or act(*args, **given)  # type: ignore
    for _ in range(8):
        loop.tick()
    assert calls == [12, 14]  # two environments


@pytest.mark.parametrize("algo", ["dqn", "sac"])
@pytest.mark.parametrize("policy", ["zero", "agent"])
def test_warmup_policy_is_zero_or_the_agent(policy: str, algo: str, build: Build) -> None:
    changes = {"algo.loop.warmup_steps": 8, "algo.loop.warmup_policy": policy, "algo.buffer.capacity": 100}
    loop = build(toy(algo, **changes))
    calls: list[int] = []
    act = loop.agent.act
    loop.agent.act = lambda *args, **given: calls.append(loop.steps) or act(*args, **given)  # type: ignore
    for _ in range(6):
        loop.tick()
    assert calls == ([8, 10] if policy == "zero" else [0, 2, 4, 6, 8, 10])
    assert loop.buffer.read(torch.arange(8))["action"].eq(0).all().item() == (policy == "zero")
    assert loop.updates == 2, "learning starts when the warm-up is over"


@pytest.mark.parametrize(("start_update", "first"), [(0, 2), (4, 6), (16, 18)])
def test_start_update_is_apart_from_the_warm_up(start_update: int, first: int, build: Build) -> None:
    loop: Any = build(toy("dqn", **{"algo.loop.start_update": start_update, "algo.loop.updates_per_step": 1.0}))
    calls = acting(loop)
    train(loop, 1)
    assert loop.steps == first
    while loop.steps < 20:
        loop.tick()
    assert calls[0] == 8, "the warm-up is as long as before"
    assert loop.updates == 20 - start_update


def test_warmup_steps_null_fills_the_buffer(build: Build) -> None:
    loop: Any = build(toy("dqn", **{"algo.loop.warmup_steps": None, "algo.buffer.capacity": 25}))
    calls = acting(loop)
    train(loop, 1)
    assert (calls[0], len(loop.buffer)) == (24, 24), "of two environments"


@pytest.mark.parametrize("algo", ["dqn", "prioritized_dqn"])
@pytest.mark.parametrize("policy", ["random", "agent"])
def test_refill_acts_by_its_policy_and_pauses_updates(policy: str, algo: str, build: Build) -> None:
    loop: Any = build(toy(algo, **{"algo.buffer.capacity": 100, "algo.loop.refill_policy": policy}))
    train(loop, 6)
    before, began, stored = weights(loop), loop.steps, loop.buffer.ring.total
    loop.refill()
    assert equal(before, weights(loop))
    assert (loop.steps, loop.updates, len(loop.buffer)) == (began, 6, 0)
    calls = acting(loop)
    for _ in range(5):
        assert len(loop.buffer) == loop.steps - began
        assert loop.updates == 6
        loop.tick()
    assert calls == [began + step for step in ([0, 2, 4, 6, 8] if policy == "agent" else [8])], "8 steps of warm-up"
    assert loop.updates == 7
    assert (loop.batch["index"] >= 2 * stored).all(), "nothing from before"


def test_a_pause_of_updates_after_refill_is_resumed(build: Build) -> None:
    values = toy("dqn", **{"algo.buffer.capacity": 100})
    loop, other = build(values), build(values)
    train(loop, 6)
    loop.refill()  # type: ignore[attr-defined]
    other.load_state_dict(loop.state_dict())
    for _ in range(8):
        loop.tick()
        other.tick()
        assert loop.updates == other.updates
    assert loop.updates > 6


@pytest.mark.parametrize("refilled", [[6], [14], [14, 18], [6, 10, 30], [14, 40, 44]])
@pytest.mark.parametrize("start_update", [0, 4, 8, 24])
def test_no_update_is_made_while_the_emptied_buffer_is_filled(
    start_update: int, refilled: list[int], build: Build
) -> None:
    loop: Any = build(toy("dqn", **{"algo.loop.start_update": start_update, "algo.loop.updates_per_step": 1.0}))
    expected, emptied = 0, -8
    while loop.steps < 60:
        if loop.steps in refilled:
            loop.refill()
            emptied = loop.steps
        loop.tick()
        if loop.steps > max(emptied + 8 if emptied >= 0 else 0, start_update):
            expected += 2  # an update for each of two environments
        assert loop.updates == expected, loop.steps


def test_rows_hold_the_lag_of_their_updates(build: Build) -> None:
    loop = build(toy("dqn", **{"algo.loop.lag": 1, "algo.loop.updates_per_step": 2.0}))
    train(loop, 12)
    assert loop.metrics.drain()["loss/lag"] > 1


def test_refill_during_the_warm_up_starts_the_warm_up_again(build: Build) -> None:
    loop: Any = build(toy("dqn", **{"algo.loop.updates_per_step": 1.0}))
    loop.tick()
    loop.refill()
    train(loop, 1)
    assert loop.steps == 2 + 8 + 2


def acting(loop: Any) -> list[int]:
    """Returns a list that records the steps of the loop at every following call of `act`."""
    calls: list[int] = []
    act = loop.agent.act
    loop.agent.act = lambda *args, **given: calls.append(loop.steps) or act(*args, **given)
    return calls


def test_what_is_stored_is_what_was_seen_done_and_got(build: Build) -> None:
    loop = build(toy("sac", **{"algo.buffer.capacity": 1000, "algo.loop.warmup_steps": 6}))
    seen = []
    step_env = loop.env.step

    def step(action: torch.Tensor) -> Any:
        obs = loop.obs
        result, events = step_env(action)
        seen.append((obs, result))
        return result, events

    loop.env.step = step  # type: ignore[method-assign]
    for _ in range(30):  # over the time limit of 20
        loop.tick()
    batch = loop.buffer.read(torch.arange(60))
    for row, (obs, result) in enumerate(seen):
        rows = slice(2 * row, 2 * row + 2)
        assert torch.equal(batch["obs"][rows], obs)
        assert torch.equal(batch["next_obs"][rows], result["next_obs"])
        assert torch.equal(batch["reward"][rows], result["reward"])
        assert torch.equal(batch["action"][rows], result["executed"]), "the action as it was executed"
        assert torch.equal(batch["truncated"][rows].bool(), result["truncated"])
    assert batch["truncated"].sum() == 2 and not batch["terminated"].any()


SPACES = [
    spaces.Discrete(3),
    spaces.MultiDiscrete([2, 3]),
    spaces.Box(-1, 1, (2,)),
    spaces.Box(-2, 5, (2, 2)),
]


def warm_up(space: Any, steps: int) -> torch.Tensor:
    """Returns random actions of four environments in this number of steps."""
    spec, random = Spec(space, space, 4), Stream(0, "warmup")
    return torch.cat([sampled(spec, None, random, torch.device("cpu")) for _ in range(steps)])


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_actions_of_the_warm_up_fill_their_space(space: spaces.Space) -> None:
    actions = warm_up(space, 200)
    assert actions.shape == (800, *space.shape)
    assert all(space.contains(action.numpy().astype(space.dtype)) for action in actions[:100])
    if isinstance(space, spaces.Box):
        low, high = torch.as_tensor(space.low), torch.as_tensor(space.high)
        unit = (actions - low) / (high - low)
        assert (unit.amin(0) < 0.02).all() and (unit.amax(0) > 0.98).all() and ((unit.mean(0) - 0.5).abs() < 0.05).all()
    else:
        assert len(actions.unique(dim=0)) == (3 if isinstance(space, spaces.Discrete) else 6)


def test_unbounded_actions_of_the_warm_up_are_normal() -> None:
    space = spaces.Box(-float("inf"), float("inf"), (2,))
    actions = warm_up(space, 500)
    assert actions.mean().abs() < 0.1 and (actions.std() - 1).abs() < 0.1
