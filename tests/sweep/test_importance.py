"""Which searched keys a sweep calls important: on surfaces whose keys are known, with noise in the scores."""

from collections.abc import Callable, Collection
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from made_sweep import make_sweep

from rlrun.report.statistics import Array
from rlrun.sweep import figures, page, stored
from rlrun.sweep.importance import importances
from rlrun.sweep.space import from_yaml
from rlrun.sweep.trials import RungJob, Trials

SPACE = from_yaml(
    {
        "algo.learning_rate": {"log": [1e-5, 1e-1]},
        "algo.gamma": {"logit": [0.9, 0.999]},
        "algo.ent_coef": {"log": [1e-6, 1e-1]},
        "algo.clip_range": {"uniform": [0.05, 0.4]},
        "algo.kind": {"choice": ["a", "b", "c"]},
    },
    "space",
)
RATE, GAMMA, KIND = "algo.learning_rate", "algo.gamma", "algo.kind"
Surface = Callable[[Array], Array]  # points [trials, keys] of the unit cube -> scores [trials]
SURFACES: dict[str, tuple[Surface, set[str]]] = {
    "narrow optimum": (lambda u: np.exp(-0.5 * ((u[:, 0] - 0.6) / 0.08) ** 2), {RATE}),
    "quadratic": (lambda u: -((u[:, 0] - 0.6) ** 2), {RATE}),
    "interaction": (lambda u: -((u[:, 0] - u[:, 1]) ** 2), {RATE, GAMMA}),
    "cliff": (lambda u: u[:, 0] < 0.75, {RATE}),
    "monotone": (lambda u: u[:, 0], {RATE}),
    "categorical": (lambda u: u[:, 4] * 3 // 1 == 1, {KIND}),
    "nothing": (lambda u: np.zeros(len(u)), set()),
}
NOISE = 0.3  # of the standard deviation of the surface


def searched(points: Array, scores: Array, failed: Collection[int] = ()) -> Trials:
    """Returns the trials of a sweep at these points, [trials, keys] and [trials]."""
    trials = Trials(["E"], seeds=1, last_rung=0)
    values = [SPACE.values(point, {}) for point in points.tolist()]
    trials.apply({"event": "asked", "points": points.tolist(), "values": values})
    for number, score in enumerate(scores.tolist()):
        job = asdict(RungJob(number, 0, "E", 0))
        if number in failed:
            trials.apply({"event": "failed", **job, "why": "nan"})
        else:
            found = {"score": score, "evaluations": [score], "seconds": 1.0, "step": 1}
            trials.apply({"event": "scored", **job, **found})
    return trials


def passing(trials: Trials, learns: bool = False) -> list[str]:
    """Returns the keys that explain more than chance, the most important first."""
    found = importances(SPACE.dimensions, trials, learns)
    return [key for key, (value, chance) in found.items() if value > chance]


def noisy(surface: str, count: int, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    points = rng.random((count, len(SPACE)))
    scores = np.asarray(SURFACES[surface][0](points), float)
    return points, scores + NOISE * (scores.std() or 1.0) * rng.normal(size=count)


@pytest.mark.parametrize("surface", SURFACES)
def test_100_trials_name_the_key_that_matters(surface: str) -> None:
    true, right = SURFACES[surface][1], 0
    for seed in range(10):
        found = passing(searched(*noisy(surface, 100, seed)))
        right += {*found[:1]} <= true and bool(found) == bool(true)
    assert right >= 9


@pytest.mark.parametrize("surface", SURFACES)
def test_24_trials_name_the_key_that_matters_or_none(surface: str) -> None:
    for seed in range(10):
        assert {*passing(searched(*noisy(surface, 24, seed)))[:1]} <= SURFACES[surface][1]


@pytest.mark.parametrize("surface", ["quadratic", "cliff", "categorical"])
def test_failed_trials_name_no_wrong_key(surface: str) -> None:
    for seed in range(4):
        points, scores = noisy(surface, 100, seed)
        rng = np.random.default_rng(seed)
        for failed in (np.flatnonzero(rng.random(100) < 0.15), np.flatnonzero(scores < np.quantile(scores, 0.3))):
            assert {*passing(searched(points, scores, failed))[:1]} <= SURFACES[surface][1]


def test_key_that_makes_trials_fail_is_important() -> None:
    points, scores = noisy("nothing", 100, 0)
    assert passing(searched(points, scores, np.flatnonzero(points[:, 3] > 0.7))) == ["algo.clip_range"]


def test_search_that_learns_makes_no_key_without_influence_important() -> None:
    """Its later trials are better, and close to each other in all keys."""
    every, within = [], []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        spread = 1 - np.arange(100)[:, None] / 100
        points = 0.6 + spread * (rng.random((100, len(SPACE))) - 0.6)
        trials = searched(points, -((points[:, 0] - 0.6) ** 2) + 0.02 * rng.normal(size=100))
        every += {*passing(trials)} - {RATE}
        within += {*passing(trials, learns=True)} - {RATE}
    assert every and not within


def test_importances_depend_on_the_order_of_scores_alone() -> None:
    points, scores = noisy("quadratic", 60, 0)
    plain = importances(SPACE.dimensions, searched(points, scores))
    assert plain == importances(SPACE.dimensions, searched(points, scores**3))


def test_keys_of_few_trials_are_left_out() -> None:
    points, scores = noisy("monotone", 19, 0)
    assert importances(SPACE.dimensions, searched(points, scores)) == {}


def test_page_has_bars_and_lines_on_one_scale_or_says_that_trials_are_too_few(tmp_path: Path) -> None:
    many, few = (stored.read(make_sweep(tmp_path / str(count), count)) for count in (200, 24))
    (picture,) = [one for one in figures.draw(many) if one.name == "importances"]
    texts = [mark.text for mark in picture.panels[0].marks if mark.text]
    assert texts[0].startswith("algo.actor_learning_rate: ")
    assert not any("%" in text for text in texts[1:]) and picture.panels[0].x.high <= 1
    assert "too few to tell" not in page.html(many, "rlrun report")
    text = page.html(few, "rlrun report")
    assert ("24 trials are too few to tell which key matters." in text) != ("says nothing" in text)
