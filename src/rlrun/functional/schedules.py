"""Schedules over the progress of a run, which goes from 0 to 1."""


def linear(start: float, end: float, progress: float, fraction: float = 1.0) -> float:
    """From start to end within the first `fraction` of the run, then end."""
    return start + (end - start) * min(1.0, progress / fraction)
