"""A search with the rules of tic-tac-toe as its model never loses against any moves, moving first or second."""

import math
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor

from rlrun.envs.builtin.boards import GAMES, Rules, Stones, best_moves
from rlrun.functional.search import Gumbel, Node, Puct, search

RULES = Rules(**GAMES["TicTacToe"])
OVER = 9  # index of the player to move in the state, after the nine stones


@cache
def by_chance(board: bytes) -> float:
    """Returns the mean reward of the player to move where both move at random: the value that the search is given."""
    played = [RULES.play(stones(board), move) for move in moves(board)]
    return float(np.mean([reward if over else -by_chance(after.tobytes()) for after, reward, over in played]))


def stones(board: bytes) -> Stones:
    return np.frombuffer(board, np.int8).reshape(3, 3)


def moves(board: bytes) -> list[int]:
    return np.flatnonzero(RULES.legal(stones(board))).tolist()


def nodes(positions: list[tuple[Stones, float, bool]]) -> Node:
    """Returns nodes with the results of `Rules.play`. Legal moves have equal priors; after the end nothing changes."""
    boards, reward, over = (np.stack(part) for part in zip(*positions, strict=True))
    flat, ended = boards.reshape(-1, 9), over[:, None]
    value = [0.0 if end else by_chance(board.tobytes()) for board, end in zip(boards, over, strict=True)]
    logits = np.where((flat == 0) | ended, 0.0, -math.inf)
    state, *rest = map(torch.tensor, (np.hstack([flat, ended]), reward, -np.ones(len(flat)), logits, value))
    return Node(state.float(), *(part.float() for part in rest))


def follow(state: Tensor, action: Tensor) -> Node:
    return nodes([after(row, move) for row, move in zip(state.numpy().astype(np.int8), action.tolist(), strict=True)])


def after(state: np.ndarray, move: int) -> tuple[Stones, float, bool]:
    board = state[:OVER].reshape(3, 3)
    return (board, 0.0, True) if state[OVER] else RULES.play(board, move)


def results(rule: str, simulations: int, first: bool, perfect: bool) -> set[float]:
    """Returns the results of all games of the search against every perfect reply, or against every legal reply."""
    found, boards, searching = set(), {RULES.start().tobytes()}, first
    while boards:
        positions = sorted(boards)
        if searching:
            root = nodes([(stones(board), 0.0, False) for board in positions])
            how: Puct | Gumbel = Puct(c1=1.25, c2=19652.0, unvisited=0.5, bounds=None)
            if rule == "gumbel":
                noise = torch.zeros(len(positions), 9)
                how = Gumbel(noise, simulations, considered=16, c_visit=50.0, c_scale=0.1, bounds=None)
            replies = [[move] for move in how.best(search(follow, root, how, simulations)).tolist()]
        else:
            replies = [list(best_moves(RULES, board)[1]) if perfect else moves(board) for board in positions]
        played = [RULES.play(stones(b), move) for b, chosen in zip(positions, replies, strict=True) for move in chosen]
        found |= {reward if searching else -reward for _, reward, over in played if over}
        boards, searching = {board.tobytes() for board, _, over in played if not over}, not searching
    return found


@pytest.mark.parametrize(("rule", "simulations"), [("puct", 100), ("gumbel", 200)])
@pytest.mark.parametrize("first", [True, False])
def test_search_never_loses_tic_tac_toe_to_a_perfect_player(rule: str, simulations: int, first: bool) -> None:
    assert results(rule, simulations, first, perfect=True) == {0.0}


@pytest.mark.parametrize("first", [True, False])
def test_search_never_loses_tic_tac_toe_to_any_player(first: bool) -> None:
    assert results("puct", 100, first, perfect=False) == {0.0, 1.0}
