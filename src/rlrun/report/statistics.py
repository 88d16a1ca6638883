"""Statistics over a few runs: point estimates and their confidence intervals.

Agarwal et al., Deep RL at the edge of the statistical precipice (arXiv 2108.13264). A *stratum* holds the scores of one
method's runs on one environment; statistics over several environments take a list of strata.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, stdtrit

Array = NDArray[np.float64]
Strata = Sequence[ArrayLike]

DRAWS = 2000
LEVEL = 0.95


def iqm(scores: ArrayLike, axis: int = -1) -> Array:
    """Interquartile mean: floor(n/4) of the lowest and of the highest scores are put aside, the rest is averaged."""
    ranked = np.sort(np.asarray(scores, float), axis)
    count = ranked.shape[axis]
    return np.asarray(ranked.take(range(count // 4, count - count // 4), axis).mean(axis))


def mean(scores: ArrayLike, axis: int = -1) -> Array:
    """Mean along an axis."""
    return np.asarray(np.asarray(scores, float).mean(axis))


def interval(
    strata: Strata, statistic: Callable[..., Array] = iqm, level: float = LEVEL, draws: int = DRAWS
) -> tuple[Array, Array]:
    """Lower and upper end of a stratified bootstrap interval of `statistic(pooled scores, axis)`.

    A stratum is [runs], or [runs, points] for curves, then the ends are [points]. Runs are drawn with replacement
    inside their stratum. NaN where no stratum has two runs.
    """
    drawn = _resampled(strata, draws)
    return _ends(statistic(np.concatenate(drawn, 1), axis=1), [part.shape[1] for part in drawn], level)


def profile(strata: Strata, thresholds: ArrayLike) -> Array:
    """Fraction of runs that score more than each threshold, averaged over strata: [thresholds]."""
    return np.mean([_above(np.asarray(stratum, float), np.asarray(thresholds, float)) for stratum in strata], 0)


def profile_interval(strata: Strata, thresholds: ArrayLike, level: float = LEVEL) -> tuple[Array, Array]:
    """Pointwise stratified bootstrap interval of `profile`: two arrays [thresholds]."""
    drawn = _resampled(strata, DRAWS // 4)
    return _ends(profile(drawn, thresholds), [part.shape[1] for part in drawn], level)


def _resampled(strata: Strata, draws: int) -> list[Array]:
    """Strata drawn with replacement: [draws, runs, ...] for each."""
    rng = np.random.default_rng(0)
    drawn = []
    for stratum in strata:
        runs = np.asarray(stratum, float)
        drawn.append(runs[rng.integers(len(runs), size=(draws, len(runs)))])
    return drawn


def improvement(xs: Strata, ys: Strata) -> float:
    """Probability that a run of X scores more than one of Y on the same environment; a tie is half a win.

    xs[i] and ys[i] are of one environment; environments count alike. The Mann-Whitney U over its maximum, averaged.
    """
    return float(np.mean([_wins(x, y).mean() for x, y in zip(xs, ys, strict=True)]))


def improvement_interval(xs: Strata, ys: Strata, level: float = LEVEL, draws: int = DRAWS) -> tuple[float, float]:
    """Stratified bootstrap interval of `improvement`; runs of X and of Y are drawn apart."""
    rng = np.random.default_rng(0)
    found = []
    for x, y in zip(xs, ys, strict=True):
        wins = _wins(x, y)
        rows, columns = (_times_drawn(rng, size, draws) for size in wins.shape)
        found.append(((rows @ wins) * columns).sum(1) / wins.size)
    sizes = [np.size(part) for part in (*xs, *ys)]
    low, high = _ends(np.mean(found, 0), sizes, level)
    return float(low), float(high)


def _times_drawn(rng: np.random.Generator, size: int, draws: int) -> Array:
    """How often each of `size` runs is drawn when `size` are drawn with replacement: [draws, runs]."""
    drawn = rng.integers(size, size=(draws, size)) + size * np.arange(draws)[:, None]
    return np.bincount(drawn.ravel(), minlength=draws * size).reshape(draws, size).astype(float)


def _above(scores: Array, thresholds: Array) -> Array:
    return np.mean(scores[..., None] > thresholds, -2)


def _wins(x: ArrayLike, y: ArrayLike) -> Array:
    """[x, y]: 1 where x scores more, 1/2 at a tie."""
    difference = np.asarray(x, float)[:, None] - np.asarray(y, float)[None, :]
    return (np.sign(difference) + 1) / 2


def _ends(found: Array, sizes: Sequence[int], level: float) -> tuple[Array, Array]:
    """Percentiles of a bootstrap distribution [draws, ...], moved out for what a bootstrap of few runs leaves out.

    n runs drawn from n vary by (n-1)/n too little, and their spread is itself a guess. The expanded percentile interval
    takes the percentiles of -t sqrt(n/(n-1)) instead of those of -z (Hesterberg, arXiv 1411.5279).
    """
    freedom = sum(sizes) - len(sizes)
    if freedom == 0:
        nothing = np.full(found.shape[1:], np.nan)
        return nothing, nothing
    tail = ndtr(stdtrit(freedom, (1 - level) / 2) * np.sqrt(sum(sizes) / freedom))
    low, high = np.quantile(found, [tail, 1 - tail], axis=0)
    return low, high
