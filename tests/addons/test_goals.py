"""Categorical goals: uniform, constant within episodes, and stored in replay."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from scipy.stats import kstest, norm
from toys import equal, put, streams, toy, train

from rlrun.core.loop import Loop
from rlrun.core.parts import Parts
from rlrun.errors import ConfigError
from rlrun.settings import registry
from rlrun.types import Spec

Build = Callable[..., Loop]
VALUES = {"name": "categorical", "num_goals": 4}
GOAL_EXTRA = "carry.goal"


def goals(obs: Any = None, values: Any = VALUES) -> Any:
    spec = Spec(obs or Box(-np.inf, np.inf, (3,), np.float32), Discrete(2), num_envs=1000)
    return registry.build("goals", values, spec, Parts(0, torch.device("cpu"), {}, spec, "goals"))


def seen_by(part: Any, carry: Any, explore: bool) -> Any:
    """Returns the extras that the add-on gives for an observation."""
    _, extras = part.see(torch.zeros(len(carry["first"]), 3), carry, explore)
    return extras


def test_goals_are_drawn_uniformly_at_episode_starts() -> None:
    part, counts = goals(), torch.zeros(4)
    for _ in range(20):
        counts += seen_by(part, {"first": torch.ones(1000, dtype=torch.bool)}, explore=True)[GOAL_EXTRA].bincount(
            minlength=4
        )
    chi_square = ((counts - 5000) ** 2 / 5000).sum()
    assert chi_square < 11.3  # chi-square quantile, three degrees of freedom: exceeded once in a hundred
    assert chi_square > 0.1  # smaller once in a hundred; near 0 if goals were dealt in turn and not drawn


def test_goals_are_carried_until_the_next_episode() -> None:
    part, first = goals(), torch.arange(1000) < 500
    carry = seen_by(part, {"first": torch.ones(1000, dtype=torch.bool)}, explore=True)
    after = seen_by(part, carry | {"first": first}, explore=True)[GOAL_EXTRA]
    assert torch.equal(after[500:], carry[GOAL_EXTRA][500:])
    assert not torch.equal(after[:500], carry[GOAL_EXTRA][:500])


def test_goals_in_evaluation_rotate_without_random_draws() -> None:
    part, every = goals(), torch.ones(3, dtype=torch.bool)
    before = part.draw.generator.get_state()
    carry, seen = {"first": every}, []
    for _ in range(4):
        kept = seen_by(part, carry, explore=False)
        carry = kept | {"first": every}
        seen += kept[GOAL_EXTRA].tolist()
    assert seen == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3]
    assert torch.equal(before, part.draw.generator.get_state())


@pytest.mark.parametrize("name", ["gaussian", "box"])
def test_continuous_goals_are_drawn_from_their_distribution(name: str) -> None:
    part, every = goals(values={"name": name, "dims": 3}), torch.ones(1000, dtype=torch.bool)
    drawn = torch.cat([seen_by(part, {"first": every}, explore=True)[GOAL_EXTRA] for _ in range(20)])
    cumulative = {"gaussian": norm.cdf, "box": lambda x: (x + 1) / 2}[name]
    assert part.space.contains(drawn[0].numpy()) and drawn.shape == (20_000, 3)
    for column in drawn.T:
        assert kstest(column.numpy(), cumulative).pvalue > 0.001
    assert torch.corrcoef(drawn.T).fill_diagonal_(0).abs().max() < 0.03


@pytest.mark.parametrize("name", ["gaussian", "box"])
def test_continuous_goals_in_evaluation_fill_their_space_without_random_draws(name: str) -> None:
    part, every = goals(values={"name": name, "dims": 2}), torch.ones(4, dtype=torch.bool)
    before = part.draw.generator.get_state()
    carry: Any = {"first": every}
    seen = []
    for _ in range(16):
        carry = seen_by(part, carry, explore=False) | {"first": every}
        seen.append(carry[GOAL_EXTRA])
    assert torch.equal(before, part.draw.generator.get_state())
    points = torch.cat(seen)
    assert torch.equal(points[:8], torch.cat([part.numbered(torch.arange(4)), part.numbered(torch.arange(4, 8))]))
    shares = (points + 1) / 2 if name == "box" else torch.special.ndtr(points)
    cells = (shares * 4).long()
    assert cells.unique(dim=0).shape == (16, 2), "64 points lie in each of 16 cells"
    counts = torch.bincount(4 * cells[:, 0] + cells[:, 1])
    assert counts.min() >= 2 and counts.max() <= 6


def test_goals_are_an_entry_of_the_observation() -> None:
    spec = Spec(Dict({"x": Box(0, 1, (2,)), "action_mask": Box(0, 1, (2,), np.int8)}), Discrete(2), num_envs=2)
    assert [*goals().spec_after(spec).obs] == ["action_mask", "goal", "x"]
    with pytest.raises(ConfigError, match=r"algo\.goals: the observation already has an entry 'goal'"):
        goals(Dict({"goal": Discrete(2)}))


CONTINUOUS = {"name": "gaussian", "dims": 1}


@pytest.mark.parametrize("values", [VALUES, CONTINUOUS], ids=["categorical", "gaussian"])
@pytest.mark.parametrize("algo", ["dqn", "sac", "td3", "rainbow"])
def test_goals_in_replay_are_those_of_the_acting_policy(algo: str, values: Any, build: Build) -> None:
    loop: Any = build(put(toy(algo, **{"algo.buffer.capacity": 100}), {"algo.goals": values}))
    acted, begun = [], []
    see = loop.addons[0].see

    def watched(obs: Any, carry: Any, explore: bool) -> Any:
        obs, extras = see(obs, carry, explore)
        acted.append(extras[GOAL_EXTRA])
        begun.append(carry["first"])
        return obs, extras

    loop.addons[0].see = watched
    received = []
    act = loop.agent.act
    loop.agent.act = lambda obs, *rest: (received.append(obs["goal"]), act(obs, *rest))[1]
    while loop.steps < 90:  # in the warm-up too
        loop.tick()
    stored = loop.buffer.all()[GOAL_EXTRA].unflatten(0, (-1, 2))
    assert torch.equal(stored, torch.stack(acted))
    assert torch.equal(stored[-len(received) :], torch.stack(received))
    changed = (stored[1:] != stored[:-1]).view(*stored[1:].shape[:2], -1).any(-1) & ~torch.stack(begun)[1:]
    assert not changed.any() and stored.unique().numel() > 1
    batch = loop.batch
    assert torch.equal(batch["obs"]["goal"], batch[GOAL_EXTRA]) and torch.equal(
        batch["next_obs"]["goal"], batch[GOAL_EXTRA]
    )


@pytest.mark.parametrize("algo", ["ppo", "ppo_lstm", "vpg", "svpg"])
def test_goals_in_rollouts_are_constant_within_episodes(algo: str, build: Build) -> None:
    loop: Any = train(build(put(toy(algo), {"algo.goals": VALUES})), 3)
    goal, first, weight = (loop.batch[key] for key in (GOAL_EXTRA, "first", "weight"))
    assert torch.equal(loop.batch["obs"]["goal"], goal)
    assert not ((goal[1:] != goal[:-1]) & ~first[1:] & (weight[1:] > 0)).any()


def test_goals_of_whole_episodes_do_not_depend_on_num_envs(build: Build) -> None:
    values = put(toy("vpg"), {"algo.goals": VALUES, "algo.loop.min_steps": 60})
    one, three = (build(put(values, {"env.num_envs": count})).collect_rollout() for count in (1, 3))
    assert equal(one[GOAL_EXTRA][0], three[GOAL_EXTRA][0]) and one[GOAL_EXTRA][0].unique().numel() > 1


def test_goals_leave_random_streams_of_the_agent_unchanged(build: Build) -> None:
    plain, with_goals = (train(build(put(toy("dqn"), changes)), 2) for changes in ({}, {"algo.goals": VALUES}))
    before, after = streams(plain), streams(with_goals)
    assert len(after) == len(before) + 1 and all(any(torch.equal(x, y) for y in after) for x in before)
