"""Draws constructor arguments from ranges, so that each environment of a run is another task."""

import numpy as np


def draw(ranges: dict[str, list[float]], seed: np.random.SeedSequence, index: int) -> dict[str, float]:
    """Returns the constructor arguments for the environment with this index, each uniform in its range [low, high]."""
    rng = np.random.default_rng(np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, index, 0)))
    return {name: float(rng.uniform(low, high)) for name, (low, high) in ranges.items()}
