"""What episodes returned, as one number; of reward vectors also what became of each component."""

from collections.abc import Sequence

import numpy as np

from rlrun.types import Objective, Return


def score(returned: Return, objective: Objective | None) -> float:
    """One number by which an episode is told and compared."""
    if isinstance(returned, float):
        return returned
    assert objective is not None
    return sum(weight * part for weight, part in zip(objective.weights, returned, strict=True))


def components(group: str, returned: Sequence[Return]) -> dict[str, float]:
    """`<group>/return_mean_<i>` of every component i; nothing where rewards are one number."""
    means = np.mean(returned, 0)
    return {f"{group}/return_mean_{i}": float(mean) for i, mean in enumerate(means)} if means.ndim else {}


def shortfall(returned: Sequence[Return], lengths: Sequence[int], objective: Objective | None) -> dict[str, float]:
    """`eval/shortfall`: how far the component that misses its floor most is below it, a step; 0 where none does."""
    if objective is None or not any(floor is not None for floor in objective.floors):
        return {}
    means = np.sum(returned, 0) / sum(lengths)
    gaps = [floor - mean for floor, mean in zip(objective.floors, means, strict=True) if floor is not None]
    return {"eval/shortfall": float(max(0.0, *gaps))}
