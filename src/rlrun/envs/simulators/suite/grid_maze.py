"""GridMaze: find the goal in one of many random mazes. There are only environments in torch."""

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from rlrun.core.random import Stream
from rlrun.envs.simulators.torch_env import State, TorchEnv

MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # up, right, down, left
RIGHT, DOWN = 1, 2


class TorchGridMaze(TorchEnv):
    """A grid of size x size cells with walls between some of them; exactly one path leads from each cell to another.

    `instance_seed` determines the `mazes`. Every episode draws one of them, a start and another cell as goal. Actions
    move up, right, down or left; a move into a wall has no effect. The reward is 1 at the goal, which ends the episode,
    and 0 elsewhere.

    The observation has four planes [4, size, size] of 0 and 1: the agent, the goal, and the cells from which a move
    right, and a move down, is possible.
    """

    def __init__(
        self,
        num_envs: int,
        max_episode_steps: int | None = 100,
        size: int = 5,
        mazes: int = 10,
        instance_seed: int = 0,
    ):
        if size < 2 or mazes < 1:
            raise ValueError(f"size={size} mazes={mazes}: must be at least 2 and at least 1")
        super().__init__(num_envs, max_episode_steps, Box(0.0, 1.0, (4, size, size)), Discrete(len(MOVES)))
        self.cells = size * size
        rng = np.random.default_rng(instance_seed)
        passages = torch.from_numpy(np.stack([draw_maze(size, rng) for _ in range(mazes)]))
        offsets = torch.tensor([down * size + right for down, right in MOVES])
        # [maze, cell, action]: the next cell; without a passage, the offset is multiplied by 0
        self.tables["next"] = torch.arange(self.cells)[:, None] + offsets * passages
        self.tables["plane"] = torch.eye(self.cells).view(-1, size, size)  # [cell, size, size]: 1 at the cell
        # [maze, 2, size, size]
        self.tables["passages"] = passages[..., [RIGHT, DOWN]].mT.unflatten(-1, (size, size)).float()

    def start(self, random: Stream, count: int) -> State:
        maze = random.integers(len(self.tables["next"]), count)
        cell = random.integers(self.cells, count)
        goal = (cell + random.integers(self.cells, count, low=1)) % self.cells
        return {"maze": maze, "cell": cell, "goal": goal}

    def move(self, state: State, action: Tensor) -> tuple[State, Tensor, Tensor]:
        cell = self.tables["next"][state["maze"], state["cell"], action]
        found = cell == state["goal"]
        return {"maze": state["maze"], "cell": cell, "goal": state["goal"]}, found.float(), found

    def observe(self, state: State) -> Tensor:
        passages = self.tables["passages"][state["maze"]]
        planes = torch.stack([self.tables["plane"][state["cell"]], self.tables["plane"][state["goal"]]], 1)
        return torch.cat([planes, passages], 1)


def draw_maze(size: int, rng: np.random.Generator) -> np.ndarray:
    """Returns whether each move is possible from each cell, [size * size, 4] bool, in a random maze.

    The maze is carved by a depth-first search from a random cell, which makes long winding passages.
    """
    passages = np.zeros((size, size, len(MOVES)), bool)
    first = (int(rng.integers(size)), int(rng.integers(size)))
    visited, path = {first}, [first]
    while path:
        row, column = path[-1]
        for action in rng.permutation(len(MOVES)):
            down, right = MOVES[action]
            beyond = (row + down, column + right)
            if beyond not in visited and 0 <= beyond[0] < size and 0 <= beyond[1] < size:
                passages[row, column, action] = True
                passages[*beyond, (action + 2) % 4] = True
                visited.add(beyond)
                path.append(beyond)
                break
        else:
            path.pop()
    return passages.reshape(size * size, len(MOVES))
