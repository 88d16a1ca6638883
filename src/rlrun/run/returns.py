"""Episode returns as metrics: a scalar, and for reward vectors also each component."""

from collections.abc import Sequence

import numpy as np

from rlrun.types import Objective, Return


def score(returned: Return, objective: Objective | None) -> float:
    """Returns an episode's return as a scalar: for reward vectors, the weighted sum of the components."""
    if isinstance(returned, float):
        return returned
    assert objective is not None
    return sum(weight * part for weight, part in zip(objective.weights, returned, strict=True))


def spread(group: str, returns: Sequence[float]) -> dict[str, float]:
    """Returns the metrics `<group>/return_std`, `_min`, `_max` and `_median` of the returns of episodes."""
    return {
        f"{group}/return_std": float(np.std(returns)),
        f"{group}/return_min": float(np.min(returns)),
        f"{group}/return_max": float(np.max(returns)),
        f"{group}/return_median": float(np.median(returns)),
    }


def components(group: str, returned: Sequence[Return]) -> dict[str, float]:
    """Returns the metrics `<group>/return_mean_<i>`, one for each component i, or {} for scalar rewards."""
    means = np.mean(returned, 0)
    if not means.ndim:
        return {}
    return {f"{group}/return_mean_{i}": float(mean) for i, mean in enumerate(means)}


def shortfall(returned: Sequence[Return], lengths: Sequence[int], objective: Objective | None) -> dict[str, float]:
    """Returns the metric `eval/shortfall`, or {} if the objective has no floors.

    The shortfall of a component is its floor minus its mean per step. The metric is the largest, or 0 if all are
    negative.
    """
    if objective is None:
        return {}
    means = np.sum(returned, 0) / sum(lengths)
    gaps = []
    for floor, mean in zip(objective.floors, means, strict=True):
        if floor is not None:
            gaps.append(floor - mean)
    if not gaps:
        return {}
    return {"eval/shortfall": float(max(0.0, *gaps))}
