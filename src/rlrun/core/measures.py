"""Sums of the measures that environments report in addition to rewards, such as regret."""

import numpy as np

Measures = dict[str, tuple[float, int, float]]
"""By name: sum over the timesteps since the last `drain`, number of these timesteps, sum since the start of the run."""


def add(measures: Measures, values: dict[str, np.ndarray]) -> None:
    """Adds the values of one timestep, name -> [num_envs], as their mean over environments."""
    for name, row in values.items():
        recent, count, total = measures.get(name, (0.0, 0, 0.0))
        mean = float(row.mean())
        measures[name] = (recent + mean, count + 1, total + mean)


def drain(measures: Measures) -> dict[str, float]:
    """Returns metrics per environment: `<name>`, the mean per timestep since the last call, and `<name>_total`, the sum
    since the start of the run."""
    values = {}
    for name, (recent, count, total) in measures.items():
        if count:
            values[name] = recent / count
        values[f"{name}_total"] = total
        measures[name] = (0.0, 0, total)
    return values
