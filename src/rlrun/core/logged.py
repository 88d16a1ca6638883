"""Collects metrics of the user: numbers that agents, environments and callbacks log."""

from collections.abc import Iterable

Logged = list[tuple[str, float]]
"""Names and values, in the order in which they were logged."""

LoggedMeans = dict[str, tuple[float, int]]
"""By name: sum and number of the values since the last row."""

PREFIX = "custom/"  # prefix of the metrics

_logged: Logged = []


def log(name: str, value: float) -> None:
    """Logs a number as the metric `custom/<name>`, which is the mean of all such numbers since the last row.

    Agents, environments (also in workers) and callbacks may call it. A kernel must not: its Python code runs only when
    it is recorded. Raises TypeError or ValueError if the value is not a number.
    """
    _logged.append((str(name), float(value)))


def take_logged() -> Logged:
    """Returns the numbers that were logged in this process since the last call."""
    global _logged
    if not _logged:
        return []
    found, _logged = _logged, []
    return found


def add_logged(means: LoggedMeans, numbers: Iterable[tuple[str, float]]) -> None:
    """Adds logged numbers to the means."""
    for name, value in numbers:
        total, count = means.get(name, (0.0, 0))
        means[name] = (total + value, count + 1)


def drain_logged(means: LoggedMeans) -> dict[str, float]:
    """Returns the metrics since the last call, and empties the means."""
    metrics = {f"{PREFIX}{name}": total / count for name, (total, count) in means.items()}
    means.clear()
    return metrics
