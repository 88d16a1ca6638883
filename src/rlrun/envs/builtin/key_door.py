"""A grid of two rooms with a locked door between them: the only reward is at the end of a long way."""

import gymnasium as gym
from gymnasium.spaces import Discrete

from rlrun.types import Info

MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # up, right, down, left


class KeyDoor(gym.Env):
    """Two rooms of size x size cells, side by side. The wall between them has a door, which only opens with the key.

    An episode starts in a random cell of the left column. The key lies in the top right corner of the left room,
    and is taken when the agent enters that cell. The door is in the bottom row. The goal is the top right corner of the
    right room; reaching it has reward 1 and ends the episode. All other rewards are 0. A move into a wall or the locked
    door has no effect.

    The observation is the state: row * width + column, with width = 2 * size + 1, plus size * width if the agent has
    the key. `P` holds the dynamics in the form of Gymnasium's toy-text environments: state -> action -> [(probability,
    next state, reward, terminated)]. All probabilities are 1.
    """

    def __init__(self, size: int = 8):
        if size < 2:
            raise ValueError(f"size={size}: must be at least 2")
        self.size = size
        self.width = 2 * size + 1
        self.cells = size * self.width
        self.key = (0, size - 1)
        self.door = (size - 1, size)
        self.goal = (0, 2 * size)
        self.observation_space = Discrete(2 * self.cells)
        self.action_space = Discrete(len(MOVES))
        self.P = {state: self._moves(state) for state in range(2 * self.cells)}
        self.initial_state_distrib = [0.0] * (2 * self.cells)
        for row in range(size):
            self.initial_state_distrib[self._cell(row, 0)] = 1 / size
        self.state = 0

    def reset(self, *, seed: int | None = None, options: dict[str, object] | None = None) -> tuple[int, Info]:
        super().reset(seed=seed)
        self.state = self._cell(int(self.np_random.integers(self.size)), 0)
        return self.state, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, Info]:
        ((_, self.state, reward, terminated),) = self.P[self.state][int(action)]
        return self.state, reward, terminated, False, {"is_success": terminated}

    def _moves(self, state: int) -> dict[int, list[tuple[float, int, float, bool]]]:
        """Returns the transitions from a state, by action."""
        has_key = state >= self.cells
        row, column = divmod(state % self.cells, self.width)
        found = {}
        for action, (down, right) in enumerate(MOVES):
            position = (row + down, column + right)
            if not self._is_open(position, has_key):
                position = (row, column)
            next_state = self._cell(*position)
            if has_key or position == self.key:
                next_state += self.cells
            at_goal = position == self.goal
            found[action] = [(1.0, next_state, float(at_goal), at_goal)]
        return found

    def _is_open(self, position: tuple[int, int], has_key: bool) -> bool:
        """Returns whether the agent can enter the cell at (row, column)."""
        row, column = position
        if not (0 <= row < self.size and 0 <= column < self.width):
            return False
        if column == self.size:
            return has_key and position == self.door
        return True

    def _cell(self, row: int, column: int) -> int:
        return row * self.width + column


gym.register("rlrun/KeyDoor-v0", f"{__name__}:KeyDoor", max_episode_steps=100)
