"""Board games for two players: n stones in a row, with or without gravity (tic-tac-toe, Connect Four).

The observation is {"board": [2, rows, columns], "action_mask": [actions]} for the player to move: first the player's
own stones, then the opponent's, and the legal moves. The reward is that of the player who made the move: 1 for a win,
-1 for an illegal move, which ends the game.

- opponent=none: self-play. The agent moves for both players. The next observation is that of the other player, so
  values alternate in sign.
- opponent=random or perfect: the opponent replies within the step, so the game is a task for one agent, and a lost game
  has reward -1. The agent moves first in half of the games, or according to `first`. The perfect opponent chooses at
  random among its best moves; it searches the whole game, so it suits small boards only.

With opening=n, a game starts with 0 to n random moves, so that self-play also sees positions that the agent avoids.
"""

from functools import cache
from typing import Literal, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Dict, Discrete, MultiBinary

from rlrun.types import Info

Stones = np.ndarray  # [rows, columns]: 1 for stones of the player to move, -1 for the opponent's, 0 for empty fields


class Rules(NamedTuple):
    """The rules of a game. `connect` stones in a row, column or diagonal win.

    With gravity, an action is a column in which the stone falls down; without gravity, it is a field.
    """

    rows: int
    columns: int
    connect: int
    gravity: bool

    @property
    def num_actions(self) -> int:
        if self.gravity:
            return self.columns
        return self.rows * self.columns

    def start(self) -> Stones:
        return np.zeros((self.rows, self.columns), np.int8)

    def legal(self, stones: Stones) -> np.ndarray:
        """Returns which moves are legal, [actions] bool."""
        if self.gravity:
            return stones[0] == 0
        return stones.ravel() == 0

    def play(self, stones: Stones, action: int) -> tuple[Stones, float, bool]:
        """Plays a legal move. Returns (the stones from the opponent's view, the reward, whether the game is over)."""
        row = action // self.columns
        if self.gravity:
            row = int(np.count_nonzero(stones[:, action] == 0)) - 1
        stones = stones.copy()
        stones[row, action % self.columns] = 1
        won = bool((stones.ravel()[self.lines()] == 1).all(1).any())
        return -stones, float(won), won or not self.legal(stones).any()

    @cache  # noqa: B019 (there are only a few different Rules, so the cache stays small)
    def lines(self) -> np.ndarray:
        """Returns the fields of every possible winning line, [lines, connect]."""
        found = []
        steps = np.arange(self.connect)
        for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
            for row in range(self.rows - down * (self.connect - 1)):
                for column in range(self.columns):
                    last = column + right * (self.connect - 1)
                    if 0 <= last < self.columns:
                        found.append((row + down * steps) * self.columns + column + right * steps)
        return np.array(found)


@cache
def best_moves(rules: Rules, board: bytes) -> tuple[int, tuple[int, ...]]:
    """Returns the minimax value of a board for the player to move (1, 0 or -1), and the moves that achieve it.

    Searches all continuations of the game.
    """
    stones = np.frombuffer(board, np.int8).reshape(rules.rows, rules.columns)
    values: dict[int, int] = {}
    for action in np.flatnonzero(rules.legal(stones)).tolist():
        after, reward, over = rules.play(stones, action)
        if over:
            values[action] = int(reward)
        else:
            values[action] = -best_moves(rules, after.tobytes())[0]
    best = max(values.values())
    return best, tuple(action for action, value in values.items() if value == best)


class Board(gym.Env):
    """A board game. The module's docstring describes observations, rewards and the arguments."""

    def __init__(
        self,
        rows: int,
        columns: int,
        connect: int,
        gravity: bool,
        opponent: Literal["none", "random", "perfect"] = "none",
        first: bool | None = None,
        opening: int = 0,
    ):
        if opponent not in ("none", "random", "perfect"):
            raise ValueError(f"opponent must be none, random or perfect, not {opponent!r}")
        if not 1 < connect <= max(rows, columns):
            raise ValueError(f"connect={connect}: no such line fits on {rows} x {columns}")
        self.rules, self.opponent = Rules(rows, columns, connect, gravity), opponent
        self.first, self.opening = first, opening
        self.stones = self.rules.start()
        self.action_space = Discrete(self.rules.num_actions)
        self.observation_space = Dict(
            {"board": MultiBinary((2, rows, columns)), "action_mask": MultiBinary(self.rules.num_actions)}
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> tuple[dict[str, np.ndarray], Info]:
        super().reset(seed=seed)
        self._open(int(self.np_random.integers(self.opening + 1)))
        first = self.first
        if first is None:
            first = self.np_random.random() < 0.5
        if self.opponent != "none" and not first:
            self._move(self._reply())
        return self._view(), {}

    def step(self, action: int) -> tuple[dict[str, np.ndarray], float, bool, bool, Info]:
        if not self.rules.legal(self.stones)[action]:
            return self._view(), -1.0, True, False, {}
        reward, over = self._move(int(action))
        if self.opponent != "none" and not over:
            lost, over = self._move(self._reply())
            reward = -lost
        return self._view(), reward, over, False, {}

    def _open(self, moves: int) -> None:
        """Starts a game with this many random moves. If these end the game, starts again."""
        self.stones, over = self.rules.start(), False
        for _ in range(moves):
            if not over:
                _, over = self._move(self._random())
        if over:
            self._open(moves)

    def _move(self, action: int) -> tuple[float, bool]:
        self.stones, reward, over = self.rules.play(self.stones, action)
        return reward, over

    def _reply(self) -> int:
        if self.opponent == "perfect":
            return int(self.np_random.choice(best_moves(self.rules, self.stones.tobytes())[1]))
        return self._random()

    def _random(self) -> int:
        return int(self.np_random.choice(np.flatnonzero(self.rules.legal(self.stones))))

    def _view(self) -> dict[str, np.ndarray]:
        mask = self.rules.legal(self.stones)
        return {
            "board": np.stack([self.stones == 1, self.stones == -1]).astype(np.int8),
            "action_mask": mask.astype(np.int8),
        }


GAMES = {
    "TicTacToe": {"rows": 3, "columns": 3, "connect": 3, "gravity": False},
    "ConnectFour": {"rows": 6, "columns": 7, "connect": 4, "gravity": True},
}

for _name, _rules in GAMES.items():
    if f"rlrun/{_name}-v0" not in gym.registry:
        gym.register(f"rlrun/{_name}-v0", f"{__name__}:Board", kwargs=_rules)
