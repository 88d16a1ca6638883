"""Searches that learn from the scores so far, with Optuna's samplers (Akiba et al. 2019, arXiv 1907.10902).

For every new trial, an Optuna study is built in memory from the trials so far. CMA-ES and NSGA-II also need the
attributes that they attach to earlier trials. These are kept in memory; a restarted driver computes them again, by the
same calls of `ask` in the order of the journal, so nothing of Optuna is stored. As in BOHB (Falkner et al. 2018, arXiv
1807.01774), a sampler learns from the scores at the highest rung at which there are enough.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlrun.imports import check_extra
from rlrun.sweep.ranges import Choice, Listed, Range
from rlrun.sweep.space import Space
from rlrun.sweep.trials import WORST, Trial, Trials

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.study import Study


class OptunaSearch:
    """Proposes points with one of Optuna's samplers."""

    def __init__(self, name: str, space: Space, seed: int, trials: int):
        """Raises ConfigError if Optuna is not installed."""
        check_extra("sweep", f"search={name}")
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.name, self.space, self.seed, self.trials = name, space, seed, trials
        self.distributions = {dimension.key: _distribution(dimension.range) for dimension in space.dimensions}
        self.has_history = name in ("cmaes", "nsga2")  # whose samplers attach attributes
        self.attributes: dict[int, dict[str, object]] = {}  # attributes that the sampler has attached, by trial

    def ask(self, trial: int, trials: Trials) -> Sequence[float]:
        study = self.study(trials)
        study.sampler = self.sampler(trial)
        if self.name == "nsga2":
            self.select_parents(study)
        params = study.ask(self.distributions).params
        self.attributes[trial] = study.get_trials(deepcopy=False)[-1].system_attrs
        return [_position(params[one.key], one.range) for one in self.space.dimensions]

    def sampler(self, trial: int) -> "BaseSampler":
        """Returns the sampler that proposes a trial, with a random stream of its own."""
        stream = int(np.random.default_rng([self.seed, trial]).integers(2**32))
        return SAMPLERS[self.name](stream, self.trials)

    def study(self, trials: Trials) -> "Study":
        """Returns a study with the scores so far."""
        import optuna

        study = optuna.create_study(direction="maximize")
        rung = rung_to_learn_from(trials, len(self.space) + 1)
        for trial in trials.trials:
            score = trial.score(rung)
            params = {one.key: _param(u, one.range) for one, u in zip(self.space.dimensions, trial.point, strict=True)}
            if score is None and trial.rung < rung:
                continue  # it was paused before this rung
            known: dict[str, Any] = {"state": optuna.trial.TrialState.RUNNING}
            if score is not None:
                known = {"value": _finite(score, trials, rung)}
            attributes = self.attributes.get(trial.number)
            study.add_trial(
                optuna.create_trial(params=params, distributions=self.distributions, system_attrs=attributes, **known)
            )
        return study

    def select_parents(self, study: "Study") -> None:
        """Selects the parents of each generation in turn, as in a study to which the trials were added one by one."""
        sampler: Any = study.sampler
        generation = 1
        while sampler.get_population(study, generation):
            sampler.get_parent_population(study, generation)
            generation += 1


def rung_to_learn_from(trials: Trials, enough: int) -> int:
    """Returns the highest rung at which at least `enough` trials have a score, or the first rung."""
    for rung in range(trials.last_rung, 0, -1):
        if sum(_is_measured(trial, rung) for trial in trials.trials) >= enough:
            return rung
    return 0


def _is_measured(trial: Trial, rung: int) -> bool:
    return not trial.failed and trial.score(rung) is not None


def _finite(score: float, trials: Trials, rung: int) -> float:
    """Returns a finite score: that of a failed trial is the lowest score of the others."""
    if score > WORST:
        return score
    scores = [trial.score(rung) for trial in trials.trials if _is_measured(trial, rung)]
    return min((score for score in scores if score is not None), default=0.0)


def _distribution(range: Range) -> "BaseDistribution":
    """Returns the distribution of a sampler's parameter: the index of a listed value, else a position in the unit
    interval, on which every range is uniform."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(range, Choice):
        return CategoricalDistribution(_indices(range))
    if isinstance(range, Listed):
        return IntDistribution(0, len(range.values) - 1)
    return FloatDistribution(0.0, 1.0)


def _indices(listed: Listed) -> list[int]:
    return [*range(len(listed.values))]


def _param(u: float, range: Range) -> float:
    """Returns the sampler's parameter for the position u in [0, 1)."""
    if isinstance(range, Listed):
        return int(u * len(range.values))
    return u


def _position(param: float, range: Range) -> float:
    """Returns the position in [0, 1] for a sampler's parameter; the inverse of `_param`."""
    if isinstance(range, Listed):
        return (param + 0.5) / len(range.values)
    return param


def _tpe(seed: int, trials: int) -> "BaseSampler":
    from optuna.samplers import TPESampler

    return TPESampler(seed=seed)


def _gp(seed: int, trials: int) -> "BaseSampler":
    from optuna.samplers import GPSampler

    return GPSampler(seed=seed)


def _cmaes(seed: int, trials: int) -> "BaseSampler":
    from optuna.samplers import CmaEsSampler

    return CmaEsSampler(seed=seed, warn_independent_sampling=False)


def _nsga2(seed: int, trials: int) -> "BaseSampler":
    from optuna.samplers import NSGAIISampler

    return NSGAIISampler(seed=seed, population_size=max(4, trials // 5))


SAMPLERS: dict[str, Callable[[int, int], "BaseSampler"]] = {"tpe": _tpe, "gp": _gp, "cmaes": _cmaes, "nsga2": _nsga2}
