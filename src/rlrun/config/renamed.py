"""A name of an earlier format."""

from typing import NamedTuple


class Renamed(NamedTuple):
    """A path with a new name."""

    old: str
    new: str
    algos: tuple[str, ...] = ()  # the values of `algo.name` that it concerns; empty: all
