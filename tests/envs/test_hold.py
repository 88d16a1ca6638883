"""Held actions: the wrapper, the discount of its steps in replay and rollouts, and normalised rewards."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from toys import NOT_NORMALIZED, equal, put, small, train

from rlrun.addons.representation.predictive import Predictive
from rlrun.addons.rewards.normalise import NormaliseRewards, StandardiseRewards
from rlrun.agents.policy.columns import columns
from rlrun.buffers.replay import Reading, Replay
from rlrun.buffers.rollout import Rollout
from rlrun.config.jobs import jobs
from rlrun.core.loop import Loop
from rlrun.dotted import leaves
from rlrun.envs.stepping.pool import SyncPool
from rlrun.envs.stepping.slot import EnvSlot
from rlrun.envs.stepping.vector import VectorEnv
from rlrun.envs.wrappers.hold import HELD, Hold
from rlrun.functional.returns import gae
from rlrun.settings import Around
from rlrun.types import Events, Step

GAMMA = 0.9


class Count(gym.Env):
    """Counts its steps t = 1, 2, ... and rewards the action plus t. An episode terminates after `ends` steps, or is cut
    after `cut` steps."""

    observation_space = Box(0.0, 1e6, (1,), np.float32)
    action_space = Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, ends: int = 1000, cut: int = 1000):
        self.ends, self.cut, self.t = ends, cut, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        reward = float(action[0]) + self.t
        return np.array([self.t], np.float32), reward, self.t == self.ends, self.t == self.cut, {}


def held(max_steps: int, **ends: int) -> Hold:
    return Hold(Hold.Config(max_steps=max_steps, gamma=GAMMA), Count(**ends))


def test_hold_sums_discounted_rewards_until_the_hold_or_the_episode_ends() -> None:
    env = held(4, ends=5)
    assert env.action_space == gym.spaces.Tuple((Discrete(4), Count.action_space))
    env.reset(seed=0)
    obs, reward, terminated, truncated, info = env.step((2, np.array([0.5])))
    assert obs == [3] and not terminated and not truncated and info[HELD].n_steps == 3
    assert reward == pytest.approx(1.5 + 0.9 * 2.5 + 0.81 * 3.5)
    obs, reward, terminated, _, info = env.step((np.array(3), np.array([0.0])))
    assert obs == [5] and terminated and info[HELD].n_steps == 2
    assert reward == pytest.approx(4 + 0.9 * 5)


def test_hold_for_one_step_is_the_plain_environment() -> None:
    env, plain = (gym.make("Pendulum-v1", max_episode_steps=20) for _ in range(2))
    one = Hold(Hold.Config(max_steps=1, gamma=GAMMA), env)
    assert np.array_equal(one.reset(seed=3)[0], plain.reset(seed=3)[0])
    for _ in range(20):
        action = plain.action_space.sample()
        held_step, step = one.step((0, action)), plain.step(action)
        assert np.array_equal(held_step[0], step[0]) and held_step[1:4] == step[1:4]
        assert held_step[4][HELD] == (1, step[1])


def test_steps_of_held_actions_report_the_drawn_reward() -> None:
    """The first action, 0.5, is held for three steps."""
    _, steps, _ = steps_of(*ENDS)
    drawn = steps[0]["drawn_reward"].tolist()
    assert set(drawn) <= {1.5, 2.5, 3.5} and len(drawn) == 2


def test_hold_draws_one_reward_uniformly() -> None:
    env = held(5)
    counts = np.zeros(5)
    for trial in range(2000):
        env.reset(seed=0 if trial == 0 else None)
        *_, info = env.step((4, np.zeros(1)))
        counts[int(info[HELD].reward) - 1] += 1
    chi_square = ((counts - 400) ** 2 / 400).sum()
    assert chi_square < 13.28  # 1 % of 4 degrees of freedom


class Scripted(gym.ActionWrapper):
    """Takes both parts of the action from one vector, for agents whose actions are no tuples."""

    action_space = Box(0.0, 4.0, (2,), np.float32)

    def action(self, action: Any) -> Any:
        return round(float(action[0])), action[1:]


ACTIONS = [[2.0, 0.5], [0.0, 0.1], [3.0, 0.2], [4.0, 0.3], [1.0, 0.4], [4.0, 0.0], [2.0, 0.9]]


def steps_of(*ends: dict[str, int]) -> tuple[VectorEnv, list[Step], list[Events]]:
    """Returns environments that hold actions, and scripted steps and their events in all of them."""
    pool = SyncPool([lambda one=one: EnvSlot(lambda: Scripted(held(5, **one)), 0) for one in ends])
    env = VectorEnv(pool, np.random.SeedSequence(0))
    obs = env.reset()
    steps, events = [], []
    for action in ACTIONS:
        native = torch.tensor([action] * len(ends))
        step, found = env.step(native / 2 - 1)
        steps.append(step | {"obs": obs})
        events.append(found)
        obs = step["following"]
    return env, steps, events


def by_hand(**ends: int) -> list[dict[str, Any]]:
    """The same steps by a loop over the environment itself."""
    env, rows = Count(**ends), []
    obs = env.reset()[0]
    for k, value in ACTIONS:
        row = {"obs": obs[0], "reward": 0.0, "n_steps": 0, "terminated": 0.0, "truncated": 0.0}
        for i in range(int(k) + 1):
            obs, reward, terminated, truncated, _ = env.step([np.float32(value)])
            row["reward"] += GAMMA**i * reward
            row["n_steps"] += 1
            if terminated or truncated:
                break
        row |= {"next_obs": obs[0], "terminated": float(terminated), "truncated": float(truncated)}
        if terminated or truncated:
            obs = env.reset()[0]
        rows.append(row)
    return rows


def filled(env: VectorEnv, steps: list[Step], n_step: int) -> Replay:
    rewards: Any = {"reward_clip": None, "reward_scale": 1.0, "standardize_reward": False}
    cfg = Replay.Config(capacity=100, compression=None, dtypes={}, **rewards)
    buffer = Replay(cfg, env.spec, Reading(gamma=GAMMA, n_step=n_step), 0, torch.device("cpu"))
    for step in steps:
        buffer.add(step)
    return buffer


ENDS: list[dict[str, int]] = [{"ends": 9}, {"cut": 6}]


def test_replay_of_held_actions_equals_a_rollout_by_hand() -> None:
    env, steps, _ = steps_of(*ENDS)
    batch = filled(env, steps, 1).all()
    for i, ends in enumerate(ENDS):
        for row, expected in enumerate(by_hand(**ends)):
            found = {key: batch[key][2 * row + i].item() for key in expected}
            assert found == pytest.approx(expected, abs=1e-5)
            discount = GAMMA ** batch["n_steps"][2 * row + i].item()  # as agents compute it
            assert discount == pytest.approx(GAMMA * GAMMA ** (expected["n_steps"] - 1))


def test_n_step_returns_of_held_actions_discount_by_the_steps_of_the_environment() -> None:
    env, steps, _ = steps_of(*ENDS)
    batch = filled(env, steps, 3).all()
    for i, ends in enumerate(ENDS):
        rows = by_hand(**ends)
        for first in range(len(rows)):
            total, n_steps = 0.0, 0
            for row in rows[first : first + 3]:
                total += GAMMA**n_steps * row["reward"]
                n_steps += row["n_steps"]
                if row["terminated"] or row["truncated"]:
                    break
            found = {key: batch[key][2 * first + i].item() for key in ("reward", "n_steps", "terminated", "next_obs")}
            expected = {"reward": total, "n_steps": n_steps, "terminated": row["terminated"]}
            assert found == pytest.approx(expected | {"next_obs": row["next_obs"]}, abs=1e-4)


def test_gae_of_held_actions_discounts_by_the_steps_of_the_environment() -> None:
    env, steps, _ = steps_of(*ENDS)
    rollout = Rollout(env.spec)
    for step in steps:
        rollout.add(step | {"action": step["executed"], "first": torch.zeros(2, dtype=torch.bool)})
    batch = rollout.batch()
    value, next_value = torch.randn(2, *batch["reward"].shape)
    (column,) = columns(batch, value, next_value, GAMMA, ())
    advantage = gae(*column, 0.8)
    for i in range(2):
        flow = 0.0
        for t in reversed(range(len(steps))):
            discount = GAMMA ** batch["n_steps"][t, i].item()
            bootstrap = discount * next_value[t, i] * (~batch["terminated"][t, i])
            done = batch["terminated"][t, i] | batch["truncated"][t, i]
            flow = batch["reward"][t, i] + bootstrap - value[t, i] + discount * 0.8 * flow * (~done)
            assert advantage[t, i].item() == pytest.approx(float(flow), abs=1e-4)


def test_held_actions_report_frames_and_plain_environments_have_no_column(make: Any) -> None:
    _, _, events = steps_of(*ENDS)
    assert [found.measures["frames"].tolist() for found in events[:2]] == [[3, 3], [1, 1]]
    plain = make("Pendulum-v1", 2, selftest="off")
    assert not plain.spec.holds
    plain.reset()
    step, _ = plain.step(torch.zeros(2, 1))
    assert "n_steps" not in step and "drawn_reward" not in step
    assert "n_steps" not in filled(plain, [], 1).packing.fields


def test_normalised_returns_of_held_actions_decay_by_the_steps_of_the_environment() -> None:
    env, steps, _ = steps_of(*ENDS)
    addon = NormaliseRewards(env.spec, GAMMA, NOT_NORMALIZED)
    step = steps[0]
    addon.returns.fill_(2.0)
    addon.on_step(step)
    assert addon.returns.tolist() == pytest.approx((2 * GAMMA**3 + step["reward"]).tolist())


def test_standardised_rewards_of_held_actions_lose_a_geometric_sum_of_means() -> None:
    env, steps, _ = steps_of(*ENDS)
    addon = StandardiseRewards(env.spec, GAMMA, replace(NOT_NORMALIZED, clip_reward=2.0))
    for step in steps:
        addon.on_step(step)
    drawn = torch.stack([step["drawn_reward"] for step in steps]).flatten()
    mean, std = drawn.mean(), drawn.std(correction=0)
    n_steps = torch.tensor([1.0, 3.0, 3.0])
    reward = torch.tensor([float(mean + std), 0.0, -1000.0])
    batch = addon.relabel({"reward": reward, "n_steps": n_steps, "weight": torch.ones(3)})
    removed = mean * (1 + GAMMA + GAMMA**2)
    assert batch["reward"].tolist() == pytest.approx([1.0, max(float(-removed / std), -6.0), -6.0], abs=1e-4)


def test_sac_that_holds_actions_learns_with_standardised_rewards_and_a_representation(
    build: Callable[..., Loop],
) -> None:
    words = ["algo=sac_hold", "env=Pendulum", "preset=none", "env.normalize=reward", "env.normalize.reward_by=rewards"]
    values = jobs([*words, "algo.representation=predictive"])[0].values
    loop: Any = build(put(values, small(dict(leaves(values)))))
    addons = {type(module): module for module in loop.modules()}
    before = [param.clone() for param in addons[Predictive].parameters()]
    train(loop, 4)
    assert addons[StandardiseRewards].statistics.available()[0] < 0, "Pendulum's rewards are below 0"
    assert not equal(before, [*addons[Predictive].parameters()])
    assert loop.batch["n_steps"].unique().numel() > 1, "actions are held for different times"


REPLAYS = Around("sac", "offpolicy", "lstm", buffer="replay", gamma=GAMMA)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, None),
        ({"recurrent": True, "buffer": None}, None),
        (
            {"gamma": 0.99},
            "env.wrappers.hold.gamma=0.9: must be algo.gamma, which is 0.99, because the agent discounts the value "
            "after a held action",
        ),
        ({"reads_data": True}, "env.wrappers.hold: is not supported with data sets and demonstrations"),
        ({"buffer": "demos"}, "env.wrappers.hold: is not supported with data sets and demonstrations"),
        (
            {"recurrent": True},
            "env.wrappers.hold: is not supported by algo=sac with network=lstm, which counts the steps of replayed "
            "sequences",
        ),
    ],
)
def test_hold_is_refused_with_what_has_no_number_of_steps(changes: dict[str, Any], line: str | None) -> None:
    faults = [*Hold.requires({"max_steps": 5, "gamma": GAMMA}, REPLAYS._replace(**changes))]
    assert faults == [line] * (line is not None)
