"""Which searched keys decide between good and other trials: PED-ANOVA (Watanabe et al. 2023, arXiv 2304.10255).

The importance of a key is the Pearson divergence between two densities of its values: that of the best trials and that
of all trials (equation 16). A key whose values are distributed alike in both decides nothing. Only order matters, so
the importance does not change under a monotonic transform of the scores.
"""

from collections.abc import Sequence
from operator import itemgetter

import numpy as np

from rlrun.report.statistics import Array
from rlrun.sweep.ranges import Listed
from rlrun.sweep.space import Dimension
from rlrun.sweep.trials import WORST, Trials

TOP = 0.1  # fraction of the trials that are the best ones (gamma in the paper)
FEWEST_TOP, FEWEST = 5, 20  # trials; with fewer, densities say nothing
CELLS = 50  # of the grid on which densities of continuous keys are compared
DRAWS = 200  # random choices of the best trials, for the importance by chance


def importances(dimensions: Sequence[Dimension], trials: Trials) -> dict[str, tuple[float, float]]:
    """Returns for each key its importance, and the importance that it has by chance, most important first.

    Trials are compared at the first rung, which all have in common. Importances sum to 1. By chance: the 95th
    percentile if the best trials are drawn at random. Keys that fewer than `FEWEST` trials have are left out.
    """
    scores = {trial.number: trial.score(0) for trial in trials.trials}
    found: dict[str, tuple[float, float]] = {}
    for dimension in dimensions:
        pairs = []
        for trial in trials.trials:
            score = scores[trial.number]
            if score is not None and score > WORST and dimension.key in trial.values:
                pairs.append((score, dimension.range.position(trial.values[dimension.key])))
        if len(pairs) < FEWEST:
            continue
        ranked = np.array(sorted(pairs, key=itemgetter(0), reverse=True))[:, 1]
        cells, width = _grid(dimension)
        top = max(FEWEST_TOP, round(TOP * len(ranked)))
        rng = np.random.default_rng(0)
        drawn = [divergence(rng.permutation(ranked), top, cells, width) for _ in range(DRAWS)]
        found[dimension.key] = divergence(ranked, top, cells, width), float(np.quantile(drawn, 0.95))
    total = sum(value for value, _ in found.values()) or 1.0
    by_value = sorted(found, key=lambda key: -found[key][0])
    return {key: (found[key][0] / total, found[key][1] / total) for key in by_value}


def divergence(ranked: Array, top: int, cells: Array, width: float | None) -> float:
    """Returns the Pearson divergence of the values of the best trials from those of all trials.

    ranked: positions of values in the unit interval, best trial first. top: number of best trials. cells, width: see
    `density`.
    """
    best, everyone = density(ranked[:top], cells, width), density(ranked, cells, width)
    return float(everyone @ (best / everyone - 1) ** 2)


def density(positions: Array, cells: Array, width: float | None) -> Array:
    """Returns the probability of each cell. cells: their middles. width: of the kernel; None for listed values.

    Gaussian kernels with the bandwidth of Scott's rule, at least one cell, or counts; each with a prior of one trial.
    """
    if width is None:
        kernels = np.isclose(positions[:, None], cells).astype(float)
    else:
        bandwidth = max(width, 1.06 * float(positions.std()) * len(positions) ** -0.2)
        kernels = np.exp(-0.5 * ((positions[:, None] - cells) / bandwidth) ** 2)
        kernels /= kernels.sum(1, keepdims=True)  # no mass outside of the bounds
    weight = kernels.sum(0) + 1 / len(cells)
    return np.asarray(weight / weight.sum())


def _grid(dimension: Dimension) -> tuple[Array, float | None]:
    """Returns the cells of a key and the smallest bandwidth; None for listed values, each of which is a cell."""
    values = dimension.range
    if isinstance(values, Listed) and len(values.values) <= CELLS:
        return (np.arange(len(values.values)) + 0.5) / len(values.values), None
    return (np.arange(CELLS) + 0.5) / CELLS, 1 / CELLS
