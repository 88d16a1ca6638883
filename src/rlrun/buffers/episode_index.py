"""Finds the first and the last stored row of the episode that a row of a replay buffer belongs to."""

import numpy as np


class EpisodeIndex:
    """Holds, for every row of every environment, the rows in which the episode of this row begins and ends.

    Row numbers are absolute, as in RingBuffer. The index is not saved, because it follows from the stored rows.
    A masked row (weight 0) is no transition: it ends the episode before, and counts as an episode of its own.
    """

    def __init__(self, capacity: int, num_envs: int):
        self.capacity = capacity
        self.num_envs = num_envs
        # of ended episodes; the system allocates this memory when it is first written
        self.first = np.zeros((capacity, num_envs), np.int64)
        self.last = np.zeros((capacity, num_envs), np.int64)
        self.clear()

    def clear(self) -> None:
        """Removes all rows from the index."""
        self.num_rows = 0  # 1 + number of the newest indexed row
        self.begun = np.zeros(self.num_envs, np.int64)  # first row of the running episode of each environment

    def add(self, first_row: int, done: np.ndarray, masked: np.ndarray) -> None:
        """Adds rows from first_row on, which must follow the indexed rows or be the oldest rows in memory.

        done, masked: bool [rows, num_envs], whether an episode ends with a row, and whether a row is masked.
        """
        self.num_rows = first_row + len(done)
        oldest = max(0, self.num_rows - self.capacity)
        self.begun = np.maximum(self.begun, oldest)
        for offset, env in np.argwhere(done | masked).tolist():
            row = first_row + offset
            if masked[offset, env]:
                self._set(env, self.begun[env], row - 1)
                self._set(env, row, row)
            else:
                self._set(env, self.begun[env], row)
            self.begun[env] = row + 1

    def rows(self, row: np.ndarray, env: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the first and the last row of the episodes of indexed rows [batch] of environments [batch].

        The first rows of an episode may be overwritten. The last row of a running episode is the newest row.
        """
        place = row % self.capacity
        is_running = row >= self.begun[env]
        first = np.where(is_running, self.begun[env], self.first[place, env])
        last = np.where(is_running, self.num_rows - 1, self.last[place, env])
        return first, last

    def _set(self, env: int, first_row: int, last_row: int) -> None:
        place = np.arange(first_row, last_row + 1) % self.capacity
        self.first[place, env] = first_row
        self.last[place, env] = last_row
