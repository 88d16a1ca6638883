"""Schedules: functions from time to a number."""

import math


def linear(
    start: float,
    end: float,
    progress: float,
    fraction: float = 1.0,
) -> float:
    """Returns a number that goes from start to end within the first `fraction` of a run, then stays; progress is 0
    to 1."""
    done = min(1.0, progress / fraction)
    return start + (end - start) * done


def exponential(
    start: float,
    end: float,
    time: float,
    constant: float,
) -> float:
    """Returns a number that goes from start towards end; the distance falls to 1/e within each time constant."""
    distance = (start - end) * math.exp(-time / constant)
    return end + distance


def geometric(
    start: float,
    factor: float,
    count: int,
) -> float:
    """Returns start * factor^count."""
    return float(start * factor**count)
