"""The Dyna maze of Sutton and Barto (Reinforcement Learning, 2nd edition, figure 8.2)."""

from typing import Any

import gymnasium as gym
from gymnasium.spaces import Discrete

from rlrun.types import Info

MAZE = """\
.......#G
..#....#.
S.#....#.
..#......
.....#...
........."""
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # up, right, down, left


class DynaMaze(gym.Env):
    """A maze of 54 cells with a start and a goal. A move into a wall has no effect.

    Reaching the goal has reward 1 and ends the episode.

    `P` holds the dynamics in the form of Gymnasium's toy-text environments: state -> action -> [(probability, next
    state, reward, terminated)]. All probabilities are 1.
    """

    def __init__(self) -> None:
        rows = MAZE.split()
        self.width = len(rows[0])
        cells = {}
        self.first = 0
        for r, row in enumerate(rows):
            for c, mark in enumerate(row):
                cells[r, c] = mark
                if mark == "S":
                    self.first = r * self.width + c
        self.observation_space, self.action_space = Discrete(len(cells)), Discrete(len(MOVES))
        self.P = {r * self.width + c: self._moves(cells, r, c) for r, c in cells}
        self.initial_state_distrib = [float(cell == self.first) for cell in self.P]
        self.state = self.first

    def _moves(self, cells: dict[tuple[int, int], str], r: int, c: int) -> dict[int, list[tuple[Any, ...]]]:
        """Returns the transitions from a cell, by action."""
        found = {}
        for action, (down, right) in enumerate(MOVES):
            row, column = r + down, c + right
            if cells.get((row, column), "#") == "#":  # a wall or the edge of the maze
                row, column = r, c
            won = cells[row, column] == "G"
            found[action] = [(1.0, row * self.width + column, float(won), won)]
        return found

    def reset(self, *, seed: int | None = None, options: dict[str, object] | None = None) -> tuple[int, Info]:
        super().reset(seed=seed)
        self.state = self.first
        return self.state, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, Info]:
        ((_, self.state, reward, terminated),) = self.P[self.state][int(action)]
        return self.state, reward, terminated, False, {}


gym.register("rlrun/DynaMaze-v0", f"{__name__}:DynaMaze", max_episode_steps=2000)
