"""The spaces of actions with several parts, which agents receive as one vector."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import Space, spaces


class MixedSpace(Space):
    """Vectors of float32: first all choices, counted from 0, then all continuous values.

    parts: the MultiDiscrete or Box space of every component, by name, in the order of the vector.
    """

    def __init__(self, parts: dict[str, spaces.MultiDiscrete | spaces.Box]):
        self.parts = parts
        self.columns = columns(parts)  # entries of the vector that hold each component
        boxes = [part for part in parts.values() if isinstance(part, spaces.Box)]
        discrete = [part for part in parts.values() if isinstance(part, spaces.MultiDiscrete)]
        self.discrete = spaces.MultiDiscrete(np.concatenate([part.nvec for part in discrete]))
        self.continuous = spaces.Box(
            np.concatenate([box.low for box in boxes]), np.concatenate([box.high for box in boxes]), dtype=np.float32
        )
        self.num_choices = len(self.discrete.nvec)  # the choices are the first entries of the vector
        self.size = self.num_choices + self.continuous.shape[0]
        super().__init__((self.size,), np.float32)

    @property
    def low(self) -> np.ndarray:
        """The lowest value of every entry."""
        return np.concatenate([np.zeros(self.num_choices, np.float32), self.continuous.low])

    @property
    def high(self) -> np.ndarray:
        """The highest value of every entry."""
        last_choices = (self.discrete.nvec - 1).astype(np.float32)
        return np.concatenate([last_choices, self.continuous.high])

    def is_bounded(self) -> bool:
        """Returns whether all continuous values have finite bounds."""
        return self.continuous.is_bounded()

    @property
    def is_np_flattenable(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MixedSpace) and self.parts == other.parts

    def __repr__(self) -> str:
        return f"MixedSpace({self.parts})"


class JoinedBox(spaces.Box):
    """Vectors of the values of several Boxes [size], one after the other. parts: by name, in this order."""

    def __init__(self, parts: dict[str, spaces.Box]):
        self.parts = parts
        self.columns = columns(parts)  # entries of the vector that hold each component
        low = np.concatenate([part.low for part in parts.values()])
        high = np.concatenate([part.high for part in parts.values()])
        super().__init__(low, high, dtype=np.float32)


class JoinedChoices(spaces.MultiDiscrete):
    """Vectors of the choices of several spaces, one after the other. parts: by name, in this order."""

    def __init__(self, parts: dict[str, spaces.MultiDiscrete]):
        self.parts = parts
        self.columns = columns(parts)  # entries of the vector that hold each component
        super().__init__(np.concatenate([part.nvec for part in parts.values()]))


def unbounded(size: int) -> spaces.Box:
    """Returns the space of vectors of any `size` numbers."""
    return spaces.Box(-np.inf, np.inf, (size,), np.float32)


def columns(parts: Mapping[str, Any]) -> dict[str, slice]:
    """Returns the entries of a vector that holds the values of several spaces [size], one after the other."""
    found = {}
    start = 0
    for name, part in parts.items():
        stop = start + part.shape[0]
        found[name] = slice(start, stop)
        start = stop
    return found


def choices(space: Space) -> list[int]:
    """Returns the number of choices of each discrete dimension of an action space, [] if it has none."""
    match space:
        case spaces.Discrete():
            return [int(space.n)]
        case spaces.MultiDiscrete():
            return [int(n) for n in space.nvec]
        case spaces.MultiBinary():
            return [2] * int(space.shape[0])
        case MixedSpace():
            return choices(space.discrete)
    return []


def continuous_sizes(space: Space) -> list[int]:
    """Returns the number of dimensions of each continuous part of an action space, [] if it has none."""
    match space:
        case MixedSpace() | JoinedBox():
            return [part.shape[0] for part in space.parts.values() if isinstance(part, spaces.Box)]
        case spaces.Box():
            return [space.shape[0]]
    return []
