"""Measures that environments report beside their rewards, such as regret."""

import numpy as np

Measures = dict[str, tuple[float, int, float]]
"""By name: sum and count of vector steps since they were last read, and the sum since the start of the run."""


def add(measures: Measures, values: dict[str, np.ndarray]) -> None:
    """Add one vector step, name -> [num_envs], as the mean over environments."""
    for name, row in values.items():
        recent, count, total = measures.get(name, (0.0, 0, 0.0))
        mean = float(row.mean())
        measures[name] = (recent + mean, count + 1, total + mean)


def drain(measures: Measures) -> dict[str, float]:
    """Per environment: `<name>` a step since the last drain, `<name>_total` since the start."""
    values = {}
    for name, (recent, count, total) in measures.items():
        if count:
            values[name] = recent / count
        values[f"{name}_total"] = total
        measures[name] = (0.0, 0, total)
    return values
