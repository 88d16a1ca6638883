"""Collects metrics of the user: numbers that agents, environments and callbacks log."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

Logged = list[tuple[str, float]]
"""Names and values, in the order in which they were logged."""

MOST = 100_000  # limit of the numbers that wait for a run to take them; without a run, they would fill the memory

_logged: deque[tuple[str, float]] = deque(maxlen=MOST)


def log(name: str, value: float) -> None:
    """Logs a number as the metric `custom/<name>`, which is the mean of all such numbers since the last row.

    Agents, environments (also in workers) and callbacks may call it. A kernel that calls it is not recorded. If more
    than 100,000 numbers are logged in one step or update, only the latest 100,000 count. Raises TypeError or ValueError
    if the value is not a number or the name is empty.
    """
    if not str(name):
        raise ValueError("the name of a metric is empty")
    _logged.append((str(name), float(value)))


def take_logged() -> Logged:
    """Returns the numbers that were logged in this process since the last call."""
    if not _logged:
        return []
    found = [*_logged]
    _logged.clear()
    return found


@contextmanager
def unlogged() -> Iterator[None]:
    """A context in which numbers that are logged are discarded."""
    before = take_logged()
    try:
        yield
    finally:
        _logged.clear()
        _logged.extend(before)
