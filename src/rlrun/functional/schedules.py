"""Schedules: what a number is at some time of a run."""

import math


def linear(start: float, end: float, progress: float, fraction: float = 1.0) -> float:
    """From start to end within the first `fraction` of a run whose progress goes from 0 to 1, then end."""
    return start + (end - start) * min(1.0, progress / fraction)


def exponential(start: float, end: float, time: float, constant: float) -> float:
    """From start towards end; the distance falls to 1/e within each time constant."""
    return end + (start - end) * math.exp(-time / constant)


def geometric(start: float, factor: float, count: int) -> float:
    """start, multiplied by the factor each time it is counted."""
    return float(start * factor**count)
