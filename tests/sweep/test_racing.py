"""Which trials get another seed."""

import pytest

from rlrun.sweep.racing import p_value, race
from rlrun.sweep.trials import Trials

ENV = "CartPole"


def trials_with(*curves: list[float], seeds: int = 3) -> Trials:
    """Returns trials whose first run has ended, with these evaluations."""
    trials = Trials([ENV], seeds, last_rung=0)
    trials.apply({"event": "asked", "points": [[] for _ in curves], "values": [{} for _ in curves]})
    for number, curve in enumerate(curves):
        found = {
            "rung": 0,
            "env": ENV,
            "seed": 0,
            "branch": 0,
            "score": curve[-1],
            "evaluations": curve,
            "seconds": 1.0,
            "step": 100,
        }
        trials.apply({"event": "scored", "trial": number, **found})
    return trials


def names(trials: Trials) -> tuple[list[int], list[int]]:
    another, ruled_out = race(trials)
    return [trial.number for trial in another], [trial.number for trial in ruled_out]


def test_trial_below_the_best_in_every_evaluation_is_ruled_out() -> None:
    trials = trials_with([1, 2, 3, 4, 5], [2, 3, 4, 5, 6], [1, 4, 3, 6, 5])
    assert names(trials) == ([1, 2], [0])


@pytest.mark.parametrize("count", [1, 4])
def test_few_evaluations_rule_nothing_out(count: int) -> None:
    assert names(trials_with([0.0] * count, [9.0] * count)) == ([0, 1], [])


def test_trials_that_failed_or_have_all_seeds_or_still_run_wait() -> None:
    trials = trials_with([1.0], [2.0], seeds=2)
    trials.apply({"event": "another_seed", "trials": [1]})
    assert names(trials) == ([0], [])
    trials.apply({"event": "failed", "trial": 0, "rung": 0, "env": ENV, "seed": 0, "branch": 0, "why": "nan"})
    found = {
        "rung": 0,
        "env": ENV,
        "seed": 1,
        "branch": 0,
        "score": 2.0,
        "evaluations": [2.0],
        "seconds": 1.0,
        "step": 100,
    }
    trials.apply({"event": "scored", "trial": 1, **found})
    assert names(trials) == ([], [])
    assert trials.trials[1].score(0) == 2.0


def test_trial_that_is_ruled_out_has_the_score_of_its_seeds() -> None:
    trials = trials_with([1, 2, 3, 4, 5], [2, 3, 4, 5, 6])
    assert trials.trials[0].score(0) is None
    trials.apply({"event": "ruled_out", "trials": [0]})
    assert trials.trials[0].score(0) == 5 and not trials.open_jobs()


def test_p_value_is_that_of_all_signs() -> None:
    assert p_value([(0, 1), (0, 2), (0, 3), (0, 4), (0, 5)]) == 1 / 32
    assert p_value([(1, 0), (0, 2), (0, 3), (0, 4), (0, 5)]) == 2 / 32
