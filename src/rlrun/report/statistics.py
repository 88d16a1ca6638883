"""Statistics over a few runs: point estimates and their confidence intervals (Agarwal et al. 2021, arXiv 2108.13264).

A *stratum* holds the scores of one method's runs on one environment. Statistics over several environments take a list
of strata.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Strata = Sequence[ArrayLike]

DRAWS = 2000
LEVEL = 0.95
# Least degrees of freedom of an interval, the number of runs minus the number of strata. With fewer, half of the
# intervals would miss the true value, and a method would seem better than an equal one in every eighth comparison.
FEWEST = 2
FEWEST_OF_PAIR = 6  # of an interval of `improvement`


def iqm(scores: ArrayLike, axis: int = -1) -> Array:
    """Returns the interquartile mean: the mean without the floor(n/4) lowest and the floor(n/4) highest scores."""
    ranked = np.sort(np.asarray(scores, float), axis)
    count = ranked.shape[axis]
    return np.asarray(ranked.take(range(count // 4, count - count // 4), axis).mean(axis))


def mean(scores: ArrayLike, axis: int = -1) -> Array:
    """Returns the mean along an axis."""
    return np.asarray(np.asarray(scores, float).mean(axis))


def interval(
    strata: Strata, statistic: Callable[..., Array] = iqm, level: float = LEVEL, draws: int = DRAWS
) -> tuple[Array, Array]:
    """Returns lower and upper end of a stratified bootstrap interval of `statistic(pooled scores, axis)`.

    Each stratum is [runs] and the ends are scalars, or each stratum is [runs, points] for curves and the ends are
    [points]. Runs are drawn with replacement within their stratum. The ends are NaN if there are too few runs: one or
    two in a single stratum.
    """
    drawn = _resampled(strata, draws)
    return _ends(statistic(np.concatenate(drawn, 1), axis=1), [part.shape[1] for part in drawn], level)


def profile(strata: Strata, thresholds: ArrayLike) -> Array:
    """Returns the fraction of runs that score more than each threshold, averaged over strata, [thresholds]."""
    return np.mean([_above(np.asarray(stratum, float), np.asarray(thresholds, float)) for stratum in strata], 0)


def profile_interval(strata: Strata, thresholds: ArrayLike, level: float = LEVEL) -> tuple[Array, Array]:
    """Returns the ends of a pointwise stratified bootstrap interval of `profile`, [thresholds] each."""
    drawn = _resampled(strata, DRAWS // 4)
    low, high = _ends(profile(drawn, thresholds), [part.shape[1] for part in drawn], level)
    return low.clip(0, 1), high.clip(0, 1)


def _resampled(strata: Strata, draws: int) -> list[Array]:
    """Returns for each stratum bootstrap samples of its runs, [draws, runs, ...]."""
    rng = np.random.default_rng(0)
    drawn = []
    for stratum in strata:
        runs = np.asarray(stratum, float)
        drawn.append(runs[rng.integers(len(runs), size=(draws, len(runs)))])
    return drawn


def improvement(xs: Strata, ys: Strata) -> float:
    """Returns the probability that a run of X scores more than a run of Y on the same environment.

    xs[i] and ys[i] are scores on the same environment. The result is the mean over environments of the Mann-Whitney U
    statistic divided by its maximum, in which a tie counts as half a win.
    """
    return float(np.mean([_wins(x, y).mean() for x, y in zip(xs, ys, strict=True)]))


def improvement_interval(xs: Strata, ys: Strata, level: float = LEVEL, draws: int = DRAWS) -> tuple[float, float]:
    """Returns a stratified bootstrap interval of `improvement`. Runs of X and of Y are drawn independently.

    The ends are NaN if there are too few runs: less than four of each method on a single environment.
    """
    rng = np.random.default_rng(0)
    found = []
    for x, y in zip(xs, ys, strict=True):
        wins = _wins(x, y)
        rows = _times_drawn(rng, wins.shape[0], draws)
        columns = _times_drawn(rng, wins.shape[1], draws)
        found.append(((rows @ wins) * columns).sum(1) / wins.size)
    sizes = [np.size(part) for part in (*xs, *ys)]
    low, high = _ends(np.mean(found, 0), sizes, level, FEWEST_OF_PAIR)
    return float(low), float(high)


def _times_drawn(rng: np.random.Generator, size: int, draws: int) -> Array:
    """Draws `size` of `size` runs with replacement, and returns how often each run was drawn, [draws, runs]."""
    drawn = rng.integers(size, size=(draws, size)) + size * np.arange(draws)[:, None]
    return np.bincount(drawn.ravel(), minlength=draws * size).reshape(draws, size).astype(float)


def _above(scores: Array, thresholds: Array) -> Array:
    return np.mean(scores[..., None] > thresholds, -2)


def _wins(x: ArrayLike, y: ArrayLike) -> Array:
    """Returns a matrix [x, y]: 1 if x scores more, 1/2 for a tie, else 0."""
    difference = np.asarray(x, float)[:, None] - np.asarray(y, float)[None, :]
    return (np.sign(difference) + 1) / 2


def _ends(found: Array, sizes: Sequence[int], level: float, fewest: int = FEWEST) -> tuple[Array, Array]:
    """Returns the ends of the expanded percentile interval (Hesterberg 2014, arXiv 1411.5279).

    found: a bootstrap distribution, [draws, ...]. sizes: number of runs in each stratum.
    The plain percentile interval is too narrow for few runs: with n runs, the variance of the bootstrap is too small by
    the factor (n-1)/n, and is itself estimated. The expanded interval therefore uses the normal quantile at
    -t sqrt(n/(n-1)) instead of -z, with t from Student's distribution. With several strata, the degrees of freedom n-1
    are n minus the number of strata. With two, as three runs have, no resample is that far in the tail; the ends then
    are t sqrt(n/(n-1)) standard deviations from the mean.
    """
    freedom = sum(sizes) - len(sizes)
    if freedom < fewest:
        unknown = np.full(found.shape[1:], np.nan)
        return unknown, unknown
    from scipy.special import ndtr, stdtrit  # late, because it takes half a second

    far = stdtrit(freedom, (1 - level) / 2) * np.sqrt(sum(sizes) / freedom)
    if freedom == FEWEST:
        return found.mean(0) + far * found.std(0), found.mean(0) - far * found.std(0)
    tail = ndtr(far)
    low, high = np.quantile(found, [tail, 1 - tail], axis=0)
    return low, high
