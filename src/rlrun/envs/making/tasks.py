"""Draws constructor arguments from ranges, so that each environment of a run is another task."""

from collections.abc import Mapping, Sequence

import numpy as np

Ranges = Mapping[str, Sequence[float]]  # [low, high] of constructor arguments, by name
Task = dict[str, float]  # values of these arguments


class Tasks:
    """The current tasks of all environments.

    The task of an environment depends only on the seed, the environment's index and the number of the draw. Without
    `env.instance_seed`, training and every evaluation have seeds of their own. Each argument has 53 random bits, so
    that an evaluation practically never has a task of the training.
    """

    def __init__(self, ranges: Ranges, seed: np.random.SeedSequence, num_envs: int, first: int = 0):
        """first: index of the first environment, if these are a block of the environments of a run."""
        self.ranges, self.seed, self.indices = ranges, seed, range(first, first + num_envs)
        self.number = 0  # number of the current draw, counted from the start of the run

    def current(self) -> list[Task]:
        """Returns the task of every environment; tasks without arguments if there are no ranges."""
        return [draw(self.ranges, self.seed, index, self.number) for index in self.indices]


def draw(ranges: Ranges, seed: np.random.SeedSequence, index: int, number: int) -> Task:
    """Returns one draw for the environment with this index. Every argument is uniform in its range."""
    rng = np.random.default_rng(np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, index, number)))
    return {name: float(rng.uniform(low, high)) for name, (low, high) in ranges.items()}
