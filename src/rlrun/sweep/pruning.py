"""Which trials train on after a rung. A trial that does not is paused, and may be promoted later."""

from statistics import median
from typing import Any, Protocol

from rlrun.sweep.trials import WORST, Trial, Trials


class Pruning(Protocol):
    """Chooses the trials that train on to their next rung."""

    def promoted(self, trials: Trials) -> list[Trial]: ...


class Asha:
    """Asynchronous successive halving (Li et al. 2020, arXiv 1810.05934): the best 1/eta of each rung train on."""

    def __init__(self, eta: int):
        self.eta = eta

    def promoted(self, trials: Trials) -> list[Trial]:
        found = []
        for rung in range(trials.last - 1, -1, -1):
            ranked = _ranked(trials, rung)
            for trial, score in ranked[: len(ranked) // self.eta]:
                if trial.rung == rung and score > WORST:
                    found.append(trial)
        return found


class Median:
    """A trial trains on unless its score is below the median of all scores at its rung (Golovin et al. 2017)."""

    def __init__(self, eta: int):
        pass

    def promoted(self, trials: Trials) -> list[Trial]:
        found = []
        for rung in range(trials.last - 1, -1, -1):
            ranked = _ranked(trials, rung)
            for trial, score in ranked:
                if trial.rung == rung and score > WORST and score >= median(score for _, score in ranked):
                    found.append(trial)
        return found


class NoPruning:
    """Every trial trains to the last rung."""

    def __init__(self, eta: int):
        pass

    def promoted(self, trials: Trials) -> list[Trial]:
        return []


def _ranked(trials: Trials, rung: int) -> list[tuple[Trial, float]]:
    """Returns the trials with a score at a rung, best first."""
    found = []
    for trial in trials.trials:
        score = trial.score(rung)
        if score is not None:
            found.append((trial, score))
    return sorted(found, key=lambda pair: (-pair[1], pair[0].number))


PRUNINGS: dict[str, type[Any]] = {"asha": Asha, "median": Median, "none": NoPruning}
