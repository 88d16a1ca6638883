"""Searches that learn from the scores, beside plain Optuna studies."""

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import optuna
import pytest

from rlrun import imports
from rlrun.errors import ConfigError
from rlrun.sweep.events import apply_all
from rlrun.sweep.optuna_search import OptunaSearch, rung_to_learn_from
from rlrun.sweep.ranges import Choice, Int, Log, Uniform
from rlrun.sweep.search import ask_again, search
from rlrun.sweep.settings import settings
from rlrun.sweep.space import Dimension, Space
from rlrun.sweep.trials import Trials

optuna.logging.set_verbosity(optuna.logging.ERROR)

ENV = "CartPole"
SPACE = Space(
    [
        Dimension("a", Log(1e-5, 1e-1), {}),
        Dimension("b", Choice(("x", "y", "z")), {}),
        Dimension("c", Int(1, 5), {}),
        Dimension("d", Uniform(-1.0, 1.0), {}),
    ]
)


def score_of(point: Sequence[float]) -> float:
    return -sum((u - 0.3) ** 2 for u in point)


def scored(trial: int, rung: int, score: float) -> dict[str, Any]:
    which = {"event": "scored", "trial": trial, "rung": rung, "env": ENV, "seed": 0, "branch": 0}
    return {**which, "score": score, "evaluations": [score], "seconds": 1.0, "step": 100}


@pytest.mark.parametrize(("name", "suggestions"), [("tpe", 50), ("cmaes", 50), ("nsga2", 50), ("gp", 11)])
def test_suggestions_equal_those_of_a_study_that_was_told_the_same_scores(name: str, suggestions: int) -> None:
    learned = OptunaSearch(name, SPACE, 3, suggestions)
    trials = Trials([ENV], seeds=1, last_rung=0)
    study = optuna.create_study(direction="maximize")
    for number in range(suggestions):
        point = [*learned.ask(number, trials)]
        trials.apply({"event": "asked", "points": [point], "values": [SPACE.values(point, {})]})
        trials.apply(scored(number, 0, score_of(point)))

        study.sampler = learned.sampler(number)
        asked = study.ask(learned.distributions)
        assert asked.params == pytest.approx(
            {"a": point[0], "b": int(point[1] * 3), "c": int(point[2] * 5), "d": point[3]}, rel=1e-12
        )
        study.tell(asked, score_of(point))


@pytest.mark.parametrize("name", ["tpe", "cmaes", "nsga2"])
def test_restarted_search_goes_on_as_one_that_was_not_interrupted(name: str) -> None:
    learned, trials, events = OptunaSearch(name, SPACE, 0, 24), Trials([ENV], seeds=1, last_rung=0), []
    for first in range(0, 24, 4):  # four trials at a time
        points = [[*learned.ask(first + place, trials)] for place in range(4)]
        events.append({"event": "asked", "points": points, "values": [SPACE.values(point, {}) for point in points]})
        events += [scored(first + place, 0, score_of(points[place])) for place in (2, 0, 3, 1)]
        for event in events[-5:]:
            trials.apply(event)
    again = OptunaSearch(name, SPACE, 0, 24)
    same = apply_all(Trials([ENV], 1, 0), events, settings({"trials": 24}), SPACE, partial(ask_again, again))
    assert again.ask(24, same) == learned.ask(24, trials)


def test_running_and_failed_trials_are_taken_into_account() -> None:
    learned = OptunaSearch("tpe", SPACE, 0, 9)
    trials = Trials([ENV], seeds=1, last_rung=0)
    points = [[*search("random", SPACE, 0, 9).ask(number, trials)] for number in range(4)]
    trials.apply({"event": "asked", "points": points, "values": [{}] * 4})
    trials.apply(scored(0, 0, 2.0))
    trials.apply(scored(1, 0, 1.0))
    trials.apply({"event": "failed", "trial": 2, "rung": 0, "env": ENV, "seed": 0, "branch": 0, "why": "nan"})
    found = learned.study(trials).get_trials()
    assert [trial.state.name for trial in found] == ["COMPLETE", "COMPLETE", "COMPLETE", "RUNNING"]
    assert [trial.value for trial in found[:3]] == [2.0, 1.0, 1.0]


def test_samplers_see_the_highest_rung_with_enough_scores() -> None:
    trials = Trials([ENV], seeds=1, last_rung=1)
    trials.apply({"event": "asked", "points": [[0.5]] * 3, "values": [{}] * 3})
    for number in range(3):
        trials.apply(scored(number, 0, number))
    trials.apply({"event": "promoted", "trials": [1, 2]})
    assert rung_to_learn_from(trials, 2) == 0
    trials.apply(scored(1, 1, 10.0))
    trials.apply(scored(2, 1, 20.0))
    assert (rung_to_learn_from(trials, 2), rung_to_learn_from(trials, 3)) == (1, 0)
    learned = OptunaSearch("tpe", Space(SPACE.dimensions[:1]), 0, 9)
    assert [trial.value for trial in learned.study(trials).get_trials()] == [10.0, 20.0]


def test_missing_package_has_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(imports.EXTRAS, "sweep", ("no_such_module",))
    with pytest.raises(ConfigError, match=r"search=tpe: needs no_such_module"):
        search("tpe", SPACE, 0, 9)


def branin(x: Sequence[float]) -> float:
    a, b = 15 * x[0] - 5, 15 * x[1]
    bowl = (b - 5.1 / (4 * np.pi**2) * a**2 + 5 / np.pi * a - 6) ** 2
    return float(bowl + 10 * (1 - 1 / (8 * np.pi)) * np.cos(a) + 10 - 0.397887)


def sphere(x: Sequence[float]) -> float:
    return sum((value - 0.37) ** 2 for value in x)


def rosenbrock(x: Sequence[float]) -> float:
    scaled = [4 * value - 2 for value in x]
    return sum(100 * (after - before**2) ** 2 + (1 - before) ** 2 for before, after in pairwise(scaled))


def hartmann(x: Sequence[float]) -> float:
    weights = np.array([1, 1.2, 3, 3.2])
    scales = np.array(
        [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
    )
    centres = 1e-4 * np.array(
        [
            [1312, 1696, 5569, 124, 8283, 5886],
            [2329, 4135, 8307, 3736, 1004, 9991],
            [2348, 1451, 3522, 2883, 3047, 6650],
            [4047, 8828, 8732, 5743, 1091, 381],
        ]
    )
    return 3.32237 - float(weights @ np.exp(-(scales * (np.array(x) - centres) ** 2).sum(1)))


FUNCTIONS: list[tuple[Callable[[Sequence[float]], float], int]] = [
    (branin, 2), (sphere, 5), (rosenbrock, 3), (hartmann, 6),
]  # fmt: skip


def regret(name: str, function: Callable[[Sequence[float]], float], size: int, seed: int) -> float:
    """Returns the lowest value of 50 suggestions. All functions have the minimum 0."""
    space = Space([Dimension(f"x{place}", Uniform(0.0, 1.0), {}) for place in range(size)])
    asking, trials = search(name, space, seed, 50), Trials([ENV], seeds=1, last_rung=0)
    values = []
    for number in range(50):
        point = [*asking.ask(number, trials)]
        values.append(function(point))
        trials.apply({"event": "asked", "points": [point], "values": [{}]})
        trials.apply(scored(number, 0, -values[-1]))
    return min(values)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tpe", "cmaes", "nsga2"])
def test_median_regret_is_below_random_search_on_three_of_four_functions(name: str) -> None:
    better = 0
    for function, size in FUNCTIONS:
        learned, random = [
            statistics.median(regret(one, function, size, seed) for seed in range(10)) for one in (name, "random")
        ]
        better += learned < random
    assert better >= 3
