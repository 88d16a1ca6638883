"""The probes return the rewards that their docstrings state."""

import gymnasium as gym
import numpy as np
import pytest

import rlrun.envs.builtin  # noqa: F401 (registers its ids)


def play(id, actions, **kwargs):
    env = gym.make(f"rlrun/{id}-v0", **kwargs)
    obs, rows = env.reset(seed=0)[0], []
    for action in actions:
        nxt, reward, terminated, truncated, _ = env.step(action)
        rows.append((obs.item(), reward, nxt.item(), terminated, truncated))
        obs = env.reset()[0] if terminated or truncated else nxt
    return rows


def test_constant_reward():
    assert play("ProbeConstant", [0, 1]) == [(0.0, 1.0, 0.0, True, False)] * 2


def test_reward_is_the_observation():
    rows = play("ProbeObservation", [0] * 20)
    assert all(obs == reward and terminated for obs, reward, _, terminated, _ in rows)
    assert {row[0] for row in rows} == {-1.0, 1.0}


def test_two_steps_for_the_discount():
    first, second = (0.0, 0.0, 1.0, False, False), (1.0, 1.0, 1.0, True, False)
    assert play("ProbeDiscount", [0] * 4) == [first, second, first, second]


def test_reward_of_the_action():
    assert [row[1] for row in play("ProbeAction", [0, 1])] == [-1.0, 1.0]
    continuous = [np.array([a], np.float32) for a in (0.5, -0.5, 1.0)]
    assert [row[1] for row in play("ProbeAction", continuous, continuous=True)] == [1.0, 0.0, 0.75]


def test_reward_of_observation_and_action():
    for obs, reward, *_ in play("ProbeObservationAction", [1] * 20):
        assert reward == obs
    for obs, reward, *_ in play("ProbeObservationAction", [np.array([0.5], np.float32)] * 20, continuous=True):
        assert reward == (1.0 if obs > 0 else 0.0)


def test_traps():
    assert play("TerminationTrap", [0]) == [(0.0, 1.0, 0.0, True, True)]
    rows = play("TruncationTrap", [0] * 6)
    assert [row[1] for row in rows] == [0, 1, 1, 1, 1, 0] and [row[4] for row in rows] == [False] * 4 + [True, False]
    assert rows[4][2] == 1.0 and not any(row[3] for row in rows)


@pytest.mark.parametrize("continuous", [False, True])
def test_endless(continuous):
    env = gym.make("rlrun/Endless-v0", continuous=continuous)
    env.reset(seed=0)
    assert not any(any(env.step(env.action_space.sample())[2:4]) for _ in range(1000))
