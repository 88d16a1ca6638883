"""Platform: dynamics of the moves, enemies, falls, rewards and the observation."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import rlrun.envs.builtin  # noqa: F401  # registers the environment
from rlrun.envs.builtin.platform import DT, END, ENEMY_SPEED, GRAVITY, HOP, KEPT, LEAP, RUN, TOP


class Still:
    """Random numbers that are all 0."""

    def normal(self, mean: float, std: float, size: Any = None) -> Any:
        return np.zeros(size) if size else 0.0


@pytest.fixture
def env() -> Any:
    """Returns the environment without noise, at the start."""
    made: Any = gym.make("rlrun/Platform-v0").unwrapped
    made.np_random = Still()
    made.reset()
    return made


def act(move: int, *parameters: float) -> Any:
    return move, *[np.array([parameter], np.float32) for parameter in parameters]


def test_run_accelerates_for_one_second_up_to_the_ground_speed(env: Any) -> None:
    _, reward, ended, _, _ = env.step(act(RUN, 1.0, 0.0, 0.0))
    x = speed = 0.0
    for _ in range(20):
        speed += 1.0
        x += speed * DT
        speed *= KEPT
    assert env.position == pytest.approx([x, TOP])
    assert reward == pytest.approx(x / END)
    assert not ended
    env.reset()
    env.step(act(RUN, 30.0, 0.0, 0.0))
    assert env.velocity[0] == pytest.approx(70 * KEPT)


@pytest.mark.parametrize(("move", "takeoff"), [(HOP, 35.0), (LEAP, 25.0)])
def test_jump_flies_until_it_lands_on_a_platform(move: int, takeoff: float, env: Any) -> None:
    env.enemy_speeds[:] = [0.0, 0.0]
    _, reward, ended, _, _ = env.step(act(move, 0.0, 60.0, 60.0))
    y, speed, x, vx = TOP, takeoff, 0.0, 60.0 / (2 * takeoff / GRAVITY + 1)
    while True:
        x, y, vx = x + vx * DT, y + speed * DT, vx * KEPT
        if y < TOP:
            break
        speed -= GRAVITY * DT
    assert env.position == pytest.approx([x, TOP])
    assert env.velocity == [0.0, 0.0]
    assert reward == pytest.approx(x / END) and not ended


def test_parameters_of_other_moves_are_ignored() -> None:
    ends = []
    for others in (0.0, 25.0):
        env: Any = gym.make("rlrun/Platform-v0")
        env.reset(seed=3)
        env.step(act(LEAP, others, others, 50.0))
        ends.append(env.unwrapped.position.copy())
    assert ends[0] == ends[1]


def test_fall_into_the_gap_ends_the_episode_without_bootstrapping(env: Any) -> None:
    env.position[0], env.enemies[0] = 245.0, 100.0
    _, _, terminated, truncated, info = env.step(act(RUN, 30.0, 0.0, 0.0))
    assert terminated and not truncated
    assert info == {"is_success": False} and env.position[1] < TOP


def test_touch_of_an_enemy_ends_the_episode_and_a_hop_passes_over_it(env: Any) -> None:
    env.position[0], env.enemies[0] = 100.0, 150.0
    assert env.step(act(RUN, 30.0, 0.0, 0.0))[2]
    env.reset()
    env.position[0], env.enemies[0] = 60.0, 150.0
    _, _, ended, _, _ = env.step(act(HOP, 0.0, 200.0, 0.0))
    assert not ended and env.position[0] > 60.0


def test_enemy_turns_back_at_the_ends_of_its_platform_and_only_the_near_one_moves(env: Any) -> None:
    assert env.enemies == [230.0, 730.0]
    env.position[0] = 30.0
    env.enemies[0], env.enemy_speeds[0] = 0.5, -ENEMY_SPEED
    env._move_enemy(0)
    assert env.enemies[0] == 0.0
    env._move_enemy(0)
    assert env.enemies[0] == pytest.approx(ENEMY_SPEED * DT)
    before = env.enemies[1]
    env.reset()
    env.step(act(RUN, 0.0, 0.0, 0.0))
    assert env.enemies[1] == before and env.enemies[0] == pytest.approx(230 - ENEMY_SPEED + ENEMY_SPEED * 2 * DT, abs=3)


def test_rewards_of_an_episode_to_the_goal_sum_to_1(env: Any) -> None:
    """The player is put onto the last platform, and the reward of the way there is what is missing."""
    env.position[0] = 1030.0
    _, reward, ended, _, info = env.step(act(RUN, 30.0, 0.0, 0.0))
    assert ended and info == {"is_success": True}
    assert 1030.0 / END + reward == pytest.approx(1.0)


def test_observation_has_nine_scaled_numbers(env: Any) -> None:
    seen = env._seen()
    expected = [20 / 1055, 0.0, 230 / 1035, 0.0, 250 / 275, 1.0, 225 / 235, 0.0, 0.0]
    np.testing.assert_allclose(seen, expected, rtol=1e-6)
    env.position[0] = 990.0
    np.testing.assert_allclose(env._seen()[4:], [50 / 275, 0.0, 0.0, 985 / 1035, 0.0], rtol=1e-6)
    env = gym.make("rlrun/Platform-v0")
    for seed in range(50):
        obs, _ = env.reset(seed=seed)
        env.action_space.seed(seed)
        ended = False
        while not ended:
            assert env.observation_space.contains(obs)
            obs, _, terminated, truncated, _ = env.step(env.action_space.sample())
            ended = terminated or truncated
