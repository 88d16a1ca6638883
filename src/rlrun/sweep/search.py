"""Searches, which choose the point of the space for each trial.

The point depends on the sweep's seed, the trial's number and, if the search learns, on the scores so far.
"""

import itertools
import math
from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from rlrun.errors import ConfigError
from rlrun.sweep.journal import Event
from rlrun.sweep.space import Space
from rlrun.sweep.trials import Trials


class Search(Protocol):
    """Proposes the point of each trial, [dimensions] in the unit cube."""

    trials: int  # number of trials, which may be below the setting `trials`
    has_history: bool  # whether a point also depends on earlier calls of `ask`, and not only on the scores

    def ask(self, trial: int, trials: Trials) -> Sequence[float]:
        """Returns the point of the trial with this number. trials: those so far, with their scores."""


def search(name: str, space: Space, seed: int, trials: int) -> Search:
    """Returns the search of this name. Raises ConfigError if it needs a package that is missing, or more trials."""
    if name in BUILT_IN:
        found: Search = BUILT_IN[name](space, seed, trials)
        return found
    from rlrun.sweep.optuna_search import OptunaSearch

    return OptunaSearch(name, space, seed, trials)


def ask_again(search: Search, event: Event, trials: Trials) -> None:
    """Repeats the calls of `ask` that led to an event, if the search has a history. To be called before the event is
    applied."""
    if search.has_history and event["event"] == "asked":
        for index in range(len(event["points"])):
            search.ask(len(trials) + index, trials)


class Random:
    """Draws every point at random, from a stream of the sweep's seed and the trial's number."""

    has_history = False

    def __init__(self, space: Space, seed: int, trials: int):
        self.size, self.seed, self.trials = len(space), seed, trials

    def ask(self, trial: int, trials: Trials) -> Sequence[float]:
        points: Sequence[float] = np.random.default_rng([self.seed, trial]).random(self.size).tolist()
        return points


class Sobol:
    """Points of a scrambled Sobol sequence, which cover the space more evenly than random ones (Owen 1998)."""

    has_history = False

    def __init__(self, space: Space, seed: int, trials: int):
        self.size, self.seed, self.trials = len(space), seed, trials

    @cached_property
    def points(self) -> np.ndarray:
        """The points of all trials, [at least trials, dimensions]. Their number is a power of two, for balance."""
        from scipy.stats import qmc

        sequence = qmc.Sobol(self.size, rng=np.random.default_rng([self.seed]))
        points: np.ndarray = sequence.random_base2(max(0, (self.trials - 1).bit_length()))
        return points

    def ask(self, trial: int, trials: Trials) -> Sequence[float]:
        points: Sequence[float] = self.points[trial].tolist()
        return points


class Grid:
    """All combinations of evenly spaced values; the last key changes fastest. Each range has as many values as the
    trials allow, or all if it has fewer; a `choice` always has all."""

    has_history = False

    def __init__(self, space: Space, seed: int, trials: int):
        """Raises ConfigError if the choices alone have more combinations than there are trials."""
        self.space = space
        per_range = max(1, bisect_right(range(1, trials + 1), trials, key=self._size))
        if self._size(per_range) > trials:
            raise ConfigError(
                f"search=grid: this space has {self._size(per_range)} combinations; trials={trials} are too few"
            )
        self.points = list(itertools.product(*self._positions(per_range)))
        self.trials = len(self.points)

    def ask(self, trial: int, trials: Trials) -> Sequence[float]:
        return self.points[trial]

    def _positions(self, per_range: int) -> list[list[float]]:
        """Returns for each dimension the positions of its values in the grid."""
        found = []
        for dimension in self.space.dimensions:
            values: list[object] = dimension.range.grid(per_range)
            found.append([dimension.range.position(value) for value in values])
        return found

    def _size(self, per_range: int) -> int:
        """Returns the number of combinations."""
        return math.prod(len(dimension.range.grid(per_range)) for dimension in self.space.dimensions)


BUILT_IN: dict[str, type[Any]] = {"random": Random, "sobol": Sobol, "grid": Grid}
