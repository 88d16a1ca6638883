"""Episode returns as metrics: one number, and for reward vectors each component."""

from collections.abc import Sequence

import numpy as np

from rlrun.types import Objective, Return


def score(returned: Return, objective: Objective | None) -> float:
    """The return as one number: of a reward vector, the weighted sum."""
    if isinstance(returned, float):
        return returned
    assert objective is not None
    return sum(weight * part for weight, part in zip(objective.weights, returned, strict=True))


def components(group: str, returned: Sequence[Return]) -> dict[str, float]:
    """`<group>/return_mean_<i>` of every component i; nothing where rewards are one number."""
    means = np.mean(returned, 0)
    if not means.ndim:
        return {}
    return {f"{group}/return_mean_{i}": float(mean) for i, mean in enumerate(means)}


def shortfall(returned: Sequence[Return], lengths: Sequence[int], objective: Objective | None) -> dict[str, float]:
    """`eval/shortfall`: the largest distance of a component's mean per step below its floor; 0 where none is below.

    Nothing without floors.
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
