"""Schedules: scalars as functions of progress, time or a count."""

import math


def linear(
    start: float,
    end: float,
    progress: float,
    fraction: float = 1.0,
) -> float:
    """Returns start at progress 0, end from progress = fraction on, and a linear interpolation in between.

    progress: fraction of the run that is done, 0 to 1.
    """
    done = min(1.0, progress / fraction)
    return start + (end - start) * done


def exponential(
    start: float,
    end: float,
    time: float,
    constant: float,
) -> float:
    """Returns end + (start - end) exp(-time / constant)."""
    distance = (start - end) * math.exp(-time / constant)
    return end + distance


def geometric(
    start: float,
    factor: float,
    count: int,
) -> float:
    """Returns start * factor^count, which is infinite if it is too large for a float."""
    try:
        return float(start * factor**count)
    except OverflowError:
        return math.inf
