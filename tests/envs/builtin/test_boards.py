"""The rules of the board games, the built-in players, and the agent's observations."""

import gymnasium as gym
import numpy as np
import pytest

import rlrun.envs.builtin  # noqa: F401 (registers its ids)
from rlrun.envs.builtin.boards import Rules, best_moves
from rlrun.envs.making.make import Recipe, find
from rlrun.envs.saving.selftest import self_test

TICTACTOE, FOUR = Rules(3, 3, 3, gravity=False), Rules(6, 7, 4, gravity=True)


def play(env, moves, seed=0):
    """Returns (observation, reward, terminated) of every step."""
    env.reset(seed=seed)
    return [env.step(move)[:3] for move in moves]


@pytest.mark.parametrize("rules, lines", [(TICTACTOE, 8), (FOUR, 69), (Rules(4, 3, 3, False), 4 + 2 * 3 + 2 * 2)])
def test_board_winning_lines_are_counted_once(rules, lines):
    assert rules.lines().shape == (lines, rules.connect)
    assert len({tuple(sorted(line)) for line in rules.lines().tolist()}) == lines


def test_board_reward_for_the_winning_move():
    *before, (obs, reward, over) = play(gym.make("rlrun/TicTacToe-v0"), [0, 3, 1, 4, 2])
    assert [(r, end) for _, r, end in before] == [(0.0, False)] * 4
    assert (reward, over) == (1.0, True)
    assert obs["board"].tolist() == [[[0, 0, 0], [1, 1, 0], [0, 0, 0]], [[1, 1, 1], [0, 0, 0], [0, 0, 0]]]


def test_a_full_board_is_a_draw():
    obs, reward, over = play(gym.make("rlrun/TicTacToe-v0"), [0, 1, 2, 4, 3, 5, 7, 6, 8])[-1]
    assert (reward, over) == (0.0, True)
    assert not obs["action_mask"].any()


def test_board_observation_alternates_sides_and_masks_taken_fields():
    obs, _, _ = play(gym.make("rlrun/TicTacToe-v0"), [4])[0]
    assert obs["board"][0].sum() == 0 and obs["board"][1, 1, 1] == 1
    assert obs["action_mask"].tolist() == [1, 1, 1, 1, 0, 1, 1, 1, 1]


def test_board_illegal_move_terminates_with_reward_minus_1():
    assert play(gym.make("rlrun/TicTacToe-v0"), [4, 4])[1][1:] == (-1.0, True)
    assert play(gym.make("rlrun/ConnectFour-v0", rows=2, connect=2), [0, 0, 0])[2][1:] == (-1.0, True)


def test_stones_fall_and_four_on_a_diagonal_win():
    env = gym.make("rlrun/ConnectFour-v0")
    obs, _, _ = play(env, [3, 3])[1]
    assert obs["board"][0, 5, 3] == 1 and obs["board"][1, 4, 3] == 1
    steps = play(env, [0, 1, 1, 2, 2, 3, 2, 3, 3, 5, 3])  # 0 at height 0, 1 at 1, 2 at 2, 3 at 3
    assert [reward for _, reward, _ in steps] == [0.0] * 10 + [1.0] and steps[-1][2]


def test_board_minimax_values():
    assert best_moves(TICTACTOE, TICTACTOE.start().tobytes()) == (0, tuple(range(9)))
    corner = np.zeros((3, 3), np.int8)
    corner[0, 0] = -1  # the opponent has a corner: only the centre does not lose
    assert best_moves(TICTACTOE, corner.tobytes()) == (0, (4,))
    assert best_moves(Rules(3, 3, 2, False), Rules(3, 3, 2, False).start().tobytes())[0] == 1


def test_the_perfect_player_never_loses_and_begins_half_of_the_games():
    env, draw, begun, results = gym.make("rlrun/TicTacToe-v0", opponent="perfect"), np.random.default_rng(0), 0, []
    env.reset(seed=3)
    for _ in range(100):
        obs, over = env.reset()[0], False
        begun += int(obs["board"].sum() == 0)
        while not over:
            obs, reward, over, _, _ = env.step(draw.choice(np.flatnonzero(obs["action_mask"])))
        results.append(reward)
    assert 30 < begun < 70
    assert set(results) <= {-1.0, 0.0} and results.count(-1.0) > 60


def test_an_opening_is_random_and_never_over():
    env, stones = gym.make("rlrun/TicTacToe-v0", opening=7), []
    env.reset(seed=0)
    for _ in range(200):
        board = env.reset()[0]["board"]
        stones.append(int(board.sum()))
        assert board[0].sum() <= board[1].sum() <= board[0].sum() + 1
        full = [board[side].ravel()[TICTACTOE.lines()].all(1).any() for side in (0, 1)]
        assert not any(full)
    assert set(stones) == set(range(8))


def test_board_first_player_is_configurable():
    for first in (True, False):
        env = gym.make("rlrun/ConnectFour-v0", opponent="random", first=first)
        assert all((env.reset(seed=seed)[0]["board"].sum() == 0) == first for seed in range(10))


@pytest.mark.parametrize("opponent", ["none", "random", "perfect"])
def test_board_state_is_saved_exactly(opponent):
    recipe = Recipe(find("rlrun/TicTacToe-v0"), {"opponent": opponent}, (), None, None, "rlrun/TicTacToe-v0")
    assert self_test(recipe).name == "native"


def test_board_with_wrong_arguments_is_refused():
    with pytest.raises(ValueError, match="opponent must be"):
        gym.make("rlrun/TicTacToe-v0", opponent="perfct")
    with pytest.raises(ValueError, match="connect=8"):
        gym.make("rlrun/ConnectFour-v0", connect=8)
