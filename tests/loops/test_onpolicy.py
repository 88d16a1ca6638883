"""On-policy: the content of rollouts, and the state after a tick."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from toys import put, toy, train

from rlrun.config.jobs import jobs
from rlrun.core.loop import Loop
from rlrun.errors import ConfigError
from rlrun.indexed import Indexed, dense, num_bytes
from rlrun.loops.onpolicy import OnPolicy
from rlrun.types import Batch

Build = Callable[..., Loop]


def rollouts(loop: Loop, ticks: int) -> list[Batch]:
    """Returns the rollouts that the agent received."""
    given: list[Batch] = []
    update = loop.agent.update

    def learn(batch: Batch, ctx: Any) -> Any:
        given.append(batch)
        return update(batch, ctx)

    loop.agent.update = learn  # type: ignore[method-assign]
    for _ in range(ticks):
        loop.tick()
    return given


def test_rollouts_follow_each_other_without_a_gap(build: Build) -> None:
    loop = build(toy("ppo"))
    start = loop.obs
    given = rollouts(loop, 3)
    assert loop.steps == 3 * 8 * 2 and loop.updates == 3
    obs = torch.cat([batch["obs"] for batch in given])
    done = torch.cat([batch["terminated"] | batch["truncated"] for batch in given])
    after = torch.cat([batch["next_obs"] for batch in given])
    first = torch.cat([batch["first"] for batch in given])
    assert torch.equal(obs[0], start)
    assert torch.equal(obs[1:][~done[:-1]], after[:-1][~done[:-1]]), "where an episode goes on, the successor is next"
    assert not torch.equal(obs[1:][done[:-1]], after[:-1][done[:-1]]), "where one ended, another starts"
    assert done.any() and first[0].all()
    assert torch.equal(first[1:], done[:-1])


def test_rollout_of_breakout_needs_the_memory_of_one_frame_per_step(build: Build) -> None:
    pytest.importorskip("ale_py")
    words = ["algo=ppo", "env=Breakout", "preset=none", "env.num_envs=1", "algo.loop.rollout_steps=128",
             "env.wrappers.atari.terminal_on_life_loss=true", "env.selftest=off"]  # fmt: skip
    batch: Batch = build(jobs(words)[0].values).collect_rollout()
    stored = num_bytes({key: batch[key] for key in ("obs", "next_obs")})
    assert batch["obs"].shape == batch["next_obs"].shape == (128, 1, 4, 84, 84)
    assert (batch["terminated"] | batch["truncated"])[:-1].any(), "resets are included"
    assert stored <= 1.2 * 128 * 84 * 84


def test_waiting_rollouts_are_saved_and_restored(build: Build) -> None:
    values = toy("vtrace", **{"algo.loop.lag": 2, "env.max_episode_steps": 5})
    loop, other = build(values), build(values)
    for _ in range(3):
        loop.tick()
    state = loop.get_extra_state()
    for rollout in state["waiting"]:
        assert all(isinstance(part, torch.Tensor) for part in rollout.values())
        num_steps = rollout["weight"].numel()
        num_finals = (rollout["terminated"] | rollout["truncated"])[:-1].sum().item()
        assert len(rollout["obs_rows"]) == num_steps + 2 + num_finals
    other.set_extra_state(state)
    for rollout, restored in zip(loop.waiting, other.waiting, strict=True):  # type: ignore[attr-defined]
        assert isinstance(restored["next_obs"], Indexed)
        assert all(torch.equal(dense(restored[key]), dense(rollout[key])) for key in ("obs", "next_obs"))


def test_log_probabilities_are_those_of_the_policy_that_acted(build: Build) -> None:
    loop = build(toy("ppo"))
    recorded: list[Any] = []
    advantages = loop.agent.advantages

    def compare(rollout: Batch) -> Batch:
        dist = loop.agent.policy(rollout["obs"])
        recorded.append((dist.log_prob(rollout["action"]) - rollout["log_prob"]).abs().max().item())
        return advantages(rollout)

    loop.agent.advantages = compare  # type: ignore[assignment]
    for _ in range(3):
        loop.tick()
    assert max(recorded) < 1e-6


def test_a_lagging_learner_is_given_each_rollout_so_many_updates_later(build: Build) -> None:
    prompt, late = build(toy("ppo")), build(toy("ppo", **{"algo.loop.lag": 2}))
    for loop in (prompt, late):  # neither learns, so both collect the same
        loop.agent.update = lambda batch, ctx: {}  # type: ignore[method-assign]
    first = [batch["obs"] for batch in given_of(prompt, 3)]
    for _ in range(2):
        late.tick()
        assert late.batch is None and late.updates == 0
    assert all(torch.equal(x, batch["obs"]) for x, batch in zip(first, given_of(late, 3), strict=True))
    assert (late.updates, late.steps) == (3, 5 * 16)


@pytest.mark.parametrize("lag", [0, 2])
def test_the_first_update_is_announced_for_the_transitions_before_it(lag: int, build: Build) -> None:
    loop = train(build(toy("ppo", **{"algo.loop.lag": lag})), 1)
    setting, transitions = loop.first_update()
    assert transitions == loop.steps
    assert setting.endswith(f", algo.loop.lag={lag}") == bool(lag)


@pytest.mark.parametrize("lag", [0, 1, 3])
def test_no_more_rollouts_wait_than_the_lag_and_each_tick_collects_one(lag: int, build: Build) -> None:
    loop = build(toy("vtrace", **{"algo.loop.lag": lag}))
    waiting = []
    for _ in range(6):
        before = loop.steps
        loop.tick()
        assert loop.steps - before == loop.cfg.rollout_steps * loop.spec.num_envs
        waiting.append(len(loop.waiting))
    assert waiting == [min(tick, lag) for tick in range(1, 7)]


def test_a_late_rollout_keeps_the_probabilities_of_the_policy_that_acted(build: Build) -> None:
    loop: Any = build(toy("vtrace", **{"algo.loop.lag": 2}))
    policies, collect = [], loop.collect_rollout

    def collected(*meanwhile: Any) -> Batch:
        policies.append(copy.deepcopy(loop.agent.policy))
        return collect(*meanwhile)

    loop.collect_rollout = collected
    for acted in range(4):
        metrics: Any = {}
        while loop.updates <= acted:
            metrics = loop.tick()
        assert metrics["loss/lag"] == min(acted, 2), "updates since the policy that acted"
        obs, action, kept = (loop.batch[key] for key in ("obs", "action", "log_prob"))
        with torch.no_grad():
            moved = [(policy(obs).log_prob(action) - kept).abs().max().item() for policy in policies[acted:]]
        assert moved[0] == 0.0 and (acted == 0 or moved[-1] > 1e-3), "not of the one that learns"


def given_of(loop: Loop, ticks: int) -> list[Batch]:
    batches = []
    for _ in range(ticks):
        loop.tick()
        assert loop.batch is not None
        batches.append(loop.batch)
    return batches


@pytest.mark.parametrize(
    ("algo", "values"),
    [
        ("cem", {"name": "onpolicy", "rollout_steps": 4, "lag": 0, "shards": None, "dtypes": {}}),
        ("maml", {"name": "onpolicy", "rollout_steps": 4, "lag": 0, "shards": None, "dtypes": {}}),
        ("ppo", {"name": "evolution", "episodes": 1, "gamma": 1.0, "shards": None}),
    ],
)
def test_loop_refuses_algorithms_that_learn_from_other_batches(algo: str, values: dict[str, Any], build: Build) -> None:
    with pytest.raises(ConfigError, match=f"algo.loop={values['name']} is not supported by algo={algo}, which"):
        build(put(toy(algo), {"algo.loop": values}))


def test_a_loop_may_add_to_its_state_by_its_own_method(build: Build) -> None:
    class Counting(OnPolicy):
        seen = 0

        def get_extra_state(self) -> dict[str, Any]:
            return super().get_extra_state() | {"seen": self.seen}

    loop, other = (build(toy("a2c")) for _ in range(2))
    loop.__class__ = other.__class__ = Counting
    loop.seen = 5  # type: ignore[attr-defined]
    other.set_extra_state(loop.get_extra_state())
    assert other.seen == 5  # type: ignore[attr-defined]
