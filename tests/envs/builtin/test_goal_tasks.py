"""BitFlip and PointReach: their rewards are those of compute_reward, and both tasks can be solved."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import rlrun.envs.builtin  # noqa: F401 (registers the environments)


def test_bit_flip_terminates_at_the_goal_and_is_truncated_after_n_steps() -> None:
    env: Any = gym.make("rlrun/BitFlip-v0", bits=6)
    for seed in range(20):
        obs, _ = env.reset(seed=seed)
        wrong = np.flatnonzero(obs["achieved_goal"] != obs["desired_goal"])
        assert len(wrong), "an episode never starts at its goal"
        for bit in wrong:
            before = obs
            obs, reward, terminated, truncated, info = env.step(bit)
            assert np.flatnonzero(obs["observation"] != before["observation"]) == [bit]
            assert np.array_equal(obs["achieved_goal"], obs["observation"])
            assert reward == terminated - 1 and info["is_success"] == terminated and not truncated
        assert terminated and reward == 0.0
    obs, _ = env.reset(seed=0)
    assert (obs["achieved_goal"] != obs["desired_goal"]).sum() > 1, "one bit does not suffice"
    ends = [env.step(0)[2:4] for _ in range(6)]
    assert ends == [(False, False)] * 5 + [(False, True)]
    with pytest.raises(ValueError, match="bits=0: must be at least 1"):
        gym.make("rlrun/BitFlip-v0", bits=0)


def test_bit_flip_computes_rewards_of_batches() -> None:
    env: Any = gym.make("rlrun/BitFlip-v0", bits=2).unwrapped
    achieved, desired = np.array([[0, 1], [1, 1]]), np.array([[0, 1], [0, 1]])
    assert env.compute_reward(achieved, desired, {}).tolist() == [0.0, -1.0]
    assert env.compute_terminated(achieved, desired, {}).tolist() == [True, False]


def test_point_reach_is_a_success_at_the_goal_and_lasts_50_steps() -> None:
    env: Any = gym.make("rlrun/PointReach-v0")
    for seed in range(10):
        obs, _ = env.reset(seed=seed)
        steps, truncated = 0, False
        while not truncated:
            way = (obs["desired_goal"] - obs["achieved_goal"]) / env.unwrapped.STEP
            obs, reward, terminated, truncated, info = env.step(np.clip(way, -1, 1).astype(np.float32))
            distance = np.linalg.norm(obs["desired_goal"] - obs["achieved_goal"])
            assert reward == (0.0 if distance < 0.05 else -1.0) and not terminated
            assert reward == env.unwrapped.compute_reward(obs["achieved_goal"], obs["desired_goal"], {})
            steps += 1
        assert steps == 50 and info["is_success"]
        assert env.observation_space.contains(obs)
