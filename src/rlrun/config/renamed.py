"""The type of an entry in the tables of renamed keys, metrics and state paths."""

from typing import NamedTuple


class Renamed(NamedTuple):
    """A path whose name changed between two formats."""

    old: str
    new: str
    algos: tuple[str, ...] = ()  # values of `algo.name` for which it was renamed; empty: all
