"""Which trials train on after a rung. All others are paused there, and may be promoted later."""

from statistics import median

from rlrun.sweep import settings
from rlrun.sweep.trials import WORST, Trial, Trials

Ranking = list[tuple[Trial, float]]  # trials with their scores at one rung, best first


class Pruning:
    """Chooses the trials that train on to their next rung. This base class chooses none; its sweeps have a single
    rung."""

    def promoted(self, trials: Trials) -> list[Trial]:
        """Returns the trials that train on, those at the highest rung first."""
        found = []
        for rung in range(trials.last_rung - 1, -1, -1):
            for trial, score in self.kept(_ranked(trials, rung)):
                if trial.rung == rung and score > WORST:
                    found.append(trial)
        return found

    def kept(self, ranking: Ranking) -> Ranking:
        """Returns the part of a ranking that trains on."""
        return []

    @property
    def share(self) -> float:
        """The fraction of the trials at a rung that trains on, about."""
        return 0.0


class Asha(Pruning):
    """Asynchronous successive halving (Li et al. 2020, arXiv 1810.05934): the best 1/eta of each rung train on."""

    def __init__(self, eta: int):
        self.eta = eta

    def kept(self, ranking: Ranking) -> Ranking:
        return ranking[: len(ranking) // self.eta]

    @property
    def share(self) -> float:
        return 1 / self.eta


class Median(Pruning):
    """A trial trains on unless its score is below the median of all scores at its rung (Golovin et al. 2017)."""

    def kept(self, ranking: Ranking) -> Ranking:
        if not ranking:
            return []
        middle = median(score for _, score in ranking)
        return [(trial, score) for trial, score in ranking if score >= middle]

    @property
    def share(self) -> float:
        return 0.5


def _ranked(trials: Trials, rung: int) -> Ranking:
    """Returns the trials with a score at a rung, best first."""
    found = []
    for trial in trials.trials:
        score = trial.score(rung)
        if score is not None:
            found.append((trial, score))

    def order(pair: tuple[Trial, float]) -> tuple[float, float, int]:
        trial, score = pair
        if score == WORST:  # a failed trial may lack the evaluations with which `tie_break` ranks
            return -score, 0.0, trial.number
        return -score, -trial.tie_break(rung), trial.number

    return sorted(found, key=order)


def pruning(cfg: settings.SweepPart) -> Pruning:
    """Returns the pruning that settings describe."""
    if isinstance(cfg, settings.AshaConfig):
        return Asha(cfg.eta)
    if cfg.name == "median":
        return Median()
    return Pruning()
