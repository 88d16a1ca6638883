"""DeepSea has the rewards of its paper, and one sequence of actions in 2^size finds the treasure."""

import itertools
from typing import Any

import gymnasium as gym
import pytest

import rlrun.envs.builtin  # noqa: F401 (registers its ids)


def dive(env: Any, actions: Any) -> tuple[float, bool, int]:
    """Returns the return, whether the treasure was found, and the last observation."""
    env.reset()
    total, terminated, info, obs = 0.0, False, {}, 0
    for action in actions:
        assert not terminated
        obs, reward, terminated, _, info = env.step(action)
        total += reward
    assert terminated
    return total, info["is_success"], obs


def test_deep_sea_has_one_successful_action_sequence() -> None:
    env = gym.make("rlrun/DeepSea-v0", size=4, instance_seed=3).unwrapped
    played = [dive(env, actions) for actions in itertools.product((0, 1), repeat=4)]
    found = [one for one in played if one[1]]
    assert len(found) == 1
    assert found[0][0] == pytest.approx(0.99) and found[0][2] == 4 * 4 + 3
    assert max(total for total, won, _ in played if not won) == 0.0, "else it is best never to go right"


def test_deep_sea_cost_of_right_moves_and_left_wall() -> None:
    env: Any = gym.make("rlrun/DeepSea-v0", size=5).unwrapped
    env.reset()
    wrong = 1 - int(env.right[0, 0])
    assert env.step(wrong)[:2] == (5, 0.0)
    obs, reward, *_ = env.step(int(env.right[1, 0]))
    assert obs == 11 and reward == pytest.approx(-0.002)


def test_deep_sea_action_meaning_follows_from_the_instance_seed() -> None:
    maps = [gym.make("rlrun/DeepSea-v0", size=8, instance_seed=seed).unwrapped.right.tolist() for seed in (0, 0, 1)]
    assert maps[0] == maps[1] != maps[2]
