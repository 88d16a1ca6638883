"""KeyDoor: the key opens the door, only the goal has a reward, and the scripted expert finds the shortest way."""

from typing import Any

import gymnasium as gym
import pytest
from key_door import shortest_way

import rlrun.envs.builtin  # noqa: F401 (registers the environment)

UP, RIGHT, DOWN, LEFT = range(4)


def walk(env: Any, *moves: tuple[int, int]) -> tuple[Any, ...]:
    """Takes each action as often as given, and returns the result of the last step."""
    for action, times in moves:
        for _ in range(times):
            result = env.step(action)
    return result  # type: ignore[no-any-return]


def test_key_door_opens_only_with_the_key_and_rewards_only_the_goal() -> None:
    env: Any = gym.make("rlrun/KeyDoor-v0", size=3).unwrapped  # rooms in columns 0 to 2 and 4 to 6
    env.reset(seed=0)
    env.state = 0
    without_key = walk(env, (DOWN, 2), (RIGHT, 5))
    assert without_key[0] == 2 * 7 + 2
    assert walk(env, (UP, 2))[0] == 21 + 2, "the key is taken in its cell"
    assert walk(env, (UP, 1), (RIGHT, 1))[0] == 21 + 2, "walls stay walls"
    assert walk(env, (DOWN, 2), (RIGHT, 2))[:2] == (21 + 2 * 7 + 4, 0.0)
    assert walk(env, (UP, 2), (RIGHT, 2))[1:] == (1.0, True, False, {"is_success": True})


def test_key_door_episodes_start_in_the_left_column() -> None:
    env: Any = gym.make("rlrun/KeyDoor-v0", size=4)
    starts = {env.reset(seed=seed)[0] for seed in range(40)}
    assert starts == {0, 9, 18, 27}
    with pytest.raises(ValueError, match="size=1: must be at least 2"):
        gym.make("rlrun/KeyDoor-v0", size=1)


@pytest.mark.parametrize("row", [0, 3])
def test_key_door_expert_takes_the_shortest_way(row: int) -> None:
    env: Any = gym.make("rlrun/KeyDoor-v0", size=4).unwrapped
    env.reset()
    env.state = row * 9
    way = shortest_way(env)
    assert len(way["action"]) == (row + 3) + (3 + 1) + (4 + 3)
    results = [env.step(action) for action in way["action"].tolist()]
    assert [result[0] for result in results] == way["obs"][1:].tolist()
    assert results[-1][1:3] == (1.0, True) and way["reward"].tolist() == [result[1] for result in results]
