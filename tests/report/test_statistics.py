"""Statistics, compared with numbers computed by hand, other implementations, and simulations."""

import math
import tracemalloc

import numpy as np
import pytest
from scipy import stats

from rlrun.report.statistics import (
    improvement,
    improvement_interval,
    interval,
    iqm,
    mean,
    profile,
    profile_interval,
)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([3.0], 3.0),
        ([1, 2, 6], 3.0),  # floor(3/4) = 0 put aside
        ([0, 1, 3, 100], 2.0),
        ([5, 1, 2, 4, 100], (2 + 4 + 5) / 3),  # floor(5/4) = 1
        ([-1000, 1, 2, 3, 4, 5, 6, 1000], 3.5),
    ],
)
def test_iqm_by_hand(scores: list[float], expected: float) -> None:
    assert iqm(scores) == pytest.approx(expected, abs=1e-12)


def test_iqm_is_scipys_trimmed_mean() -> None:
    rng = np.random.default_rng(1)
    for count in range(1, 40):
        table = rng.normal(size=(count, 7)) ** 3
        assert iqm(table.ravel()) == pytest.approx(stats.trim_mean(table.ravel(), 0.25), abs=1e-12)
        assert np.allclose(iqm(table, 0), stats.trim_mean(table, 0.25, axis=0), atol=1e-12)


def test_interval_of_three_values_is_that_of_student() -> None:
    scores = np.array([0.0, 1.0, 5.0])
    low, high = interval([scores], mean, draws=50_000)
    expected = stats.t.interval(0.95, 2, scores.mean(), stats.sem(scores))
    assert (low, high) == pytest.approx(expected, rel=0.02)
    assert low < scores.min() and high > scores.max(), "three of four such ranges hold the truth"


def test_interval_percentiles_by_hand() -> None:
    """With n = 10, t(9, 2.5 %) sqrt(10/9) = 2.2622 * 1.0541 = 2.3845, so the ends are the 0.855 % and 99.145 % points.

    Of ten scores, nine 0 and one 1, the mean of ten draws is Binomial(10, 1/10)/10: P(0) = 0.349, P(<= 3) = 0.987,
    P(<= 4) = 0.998. So the ends are 0 and 4/10.
    """
    low, high = interval([[0.0] * 9 + [1.0]], mean, draws=20_000)
    assert (float(low), float(high)) == (0.0, 0.4)


def test_interval_matches_scipy_where_runs_are_many() -> None:
    scores = np.random.default_rng(2).gamma(2.0, size=400)
    low, high = interval([scores], mean, draws=20_000)
    other = stats.bootstrap((scores,), np.mean, method="percentile", n_resamples=20_000, rng=3).confidence_interval
    assert (low, high) == pytest.approx((other.low, other.high), abs=0.02 * scores.std())


def test_interval_resamples_strata_with_their_sizes() -> None:
    """Two environments with constant scores: every resample gives the same pool."""
    low, high = interval([[1.0, 1.0], [5.0, 5.0]], mean)
    assert (low, high) == (3.0, 3.0)


def test_interval_of_curves_is_pointwise() -> None:
    table = np.random.default_rng(4).normal(size=(5, 3))
    low, high = interval([table])
    for point in range(3):
        one = interval([table[:, point]])
        assert (low[point], high[point]) == pytest.approx(one, abs=1e-12)


def test_interval_of_too_few_runs_is_nan() -> None:
    assert all(math.isnan(end) for scores in ([3.0], [3.0, 4.0]) for end in interval([scores]))
    for count in (1, 2, 3):
        ends = improvement_interval([np.arange(count) + 5], [np.arange(count)])
        assert all(map(math.isnan, ends)), "chance separates three and three runs in 10 of 100 cases"
    assert improvement_interval([[4, 5, 6], [4, 5, 6]], [[1, 2, 3], [1, 2, 3]]) == (1.0, 1.0)


def test_profile_by_hand() -> None:
    """One environment with 0, 0.5, 1 and one with 0.2: environments have equal weights, and equal is not above."""
    found = profile([[0.0, 0.5, 1.0], [0.2]], [0.0, 0.1, 0.2, 0.5, 1.0])
    assert found == pytest.approx([(2 / 3 + 1) / 2, (2 / 3 + 1) / 2, (2 / 3) / 2, (1 / 3) / 2, 0.0], abs=1e-12)


def test_profile_interval_holds_the_profile() -> None:
    scores, thresholds = np.random.default_rng(5).random((2, 8)), np.linspace(0, 1, 11)
    low, high = profile_interval([*scores], thresholds)
    found = profile([*scores], thresholds)
    assert (low <= found).all() and (found <= high).all() and (low < high).any()


def test_improvement_by_hand() -> None:
    """X = {1, 3}, Y = {2, 3}: 1<2, 1<3, 3>2, 3=3 make 1.5 wins of 4; the second environment is won."""
    assert improvement([[1, 3]], [[2, 3]]) == pytest.approx(1.5 / 4)
    assert improvement([[1, 3], [9]], [[2, 3], [1, 2, 3]]) == pytest.approx((1.5 / 4 + 1) / 2)


def test_improvement_is_the_mann_whitney_u() -> None:
    rng = np.random.default_rng(6)
    for _ in range(20):
        x, y = rng.integers(0, 6, 7), rng.integers(0, 6, 9)
        u = stats.mannwhitneyu(x, y).statistic
        assert improvement([x], [y]) == pytest.approx(u / 63, abs=1e-12)
        assert improvement([x], [y]) + improvement([y], [x]) == pytest.approx(1, abs=1e-12)


def test_improvement_interval_is_certain_where_the_runs_are() -> None:
    assert improvement_interval([[5, 6, 7, 8]], [[1, 2, 3, 4]]) == (1.0, 1.0)
    low, high = improvement_interval([np.arange(10)], [np.arange(10) + 1])
    assert 0 <= low < improvement([np.arange(10)], [np.arange(10) + 1]) < high <= 1


def test_improvement_interval_of_hundreds_of_runs_fits_into_memory() -> None:
    rng = np.random.default_rng(9)
    tracemalloc.start()
    low, high = improvement_interval([rng.normal(size=300)], [rng.normal(size=300)])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert low < 0.5 < high and high - low < 0.2
    assert peak < 100e6, "2,000 draws of 300 times 300 comparisons are 1.4 GB"


def covered(draw: object, truth: float, trials: int, statistic: object = iqm, envs: int = 1) -> float:
    rng = np.random.default_rng(7)
    hits = 0
    for _ in range(trials):
        low, high = interval([draw(rng) for _ in range(envs)], statistic, draws=1000)  # type: ignore[operator, arg-type]
        hits += bool(low <= truth <= high)
    return hits / trials


@pytest.mark.parametrize("count", [3, 5])
def test_95_percent_intervals_of_few_seeds_hold_the_truth(count: int) -> None:
    assert 0.92 < covered(lambda rng: rng.normal(size=count), 0.0, 200) < 0.99


NORMAL, BOUNDED = (lambda rng: rng.normal(size=10)), (lambda rng: rng.beta(2, 4, size=10))


@pytest.mark.slow
@pytest.mark.parametrize("case", ["normal", "skewed", "three environments", "mean"])
def test_95_percent_intervals_of_ten_seeds_hold_the_truth_95_times_of_100(case: str) -> None:
    """Within 2 points. The truth of a skewed IQM is the mean of what `iqm` gives for ten runs."""
    skewed = float(iqm(np.random.default_rng(8).beta(2, 4, size=(400_000, 10)), 1).mean())
    found = {
        "normal": lambda: covered(NORMAL, 0.0, 3000),
        "skewed": lambda: covered(BOUNDED, skewed, 3000),
        "three environments": lambda: covered(NORMAL, 0.0, 3000, envs=3),
        "mean": lambda: covered(NORMAL, 0.0, 3000, mean),
    }[case]()
    print(f"{case}: {found:.1%}")
    assert abs(found - 0.95) <= 0.02
