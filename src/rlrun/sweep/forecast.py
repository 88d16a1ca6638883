"""Estimates how many steps a sweep still trains, and how long that takes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlrun.sweep.pruning import pruning
from rlrun.sweep.settings import PbtConfig, SweepConfig
from rlrun.sweep.standings import job_steps, totals
from rlrun.sweep.trials import Trials


@dataclass(frozen=True)
class Forecast:
    """The steps of a sweep: done, and still to come."""

    steps: int  # of jobs with results
    left: float  # estimated steps of all other jobs
    speed: float  # steps per second of one worker, 0 if it is not known yet
    workers: int

    def left_s(self, ahead: float = 0.0) -> float | None:
        """Returns the seconds left, or None if no job has a result. ahead: steps that running jobs have done."""
        if not self.speed:
            return None
        return max(0.0, self.left - ahead) / (self.speed * self.workers)

    def fraction_done(self, ahead: float = 0.0) -> float:
        """Returns the fraction of all steps that are done."""
        if not self.left:
            return 1.0
        return min(1.0, (self.steps + ahead) / (self.steps + self.left))


def forecast(trials: Trials, cfg: SweepConfig, rung_steps: Mapping[str, Sequence[int]], planned: int) -> Forecast:
    """Returns the forecast from the results so far.

    rung_steps: environment -> step of each rung. planned: number of trials of the whole sweep.
    """
    taken = totals(trials, rung_steps)
    speed = taken.steps / taken.seconds if taken.seconds else 0.0
    if trials.winner is not None:
        return Forecast(taken.steps, 0.0, speed, cfg.workers)
    total = 0.0  # steps of the whole sweep
    share = pruning(cfg.prune).share
    if isinstance(cfg.kind, PbtConfig):
        share = 1.0
    for steps in rung_steps.values():
        before = 0
        for rung, step in enumerate(steps):
            # only at the first rung are there trials that are ruled out after a few seeds
            seeds = cfg.seeds if rung else _mean_seeds(trials)
            total += planned * share**rung * seeds * (step - before)
            before = step
        total += min(cfg.winners, planned) * cfg.fresh_seeds * steps[-1]
    still_open = sum(job_steps(job, trials, rung_steps) for job in trials.open_jobs())
    return Forecast(taken.steps, max(still_open, total - taken.steps), speed, cfg.workers)


def _mean_seeds(trials: Trials) -> float:
    """Returns the mean number of seeds over the trials that get no more, or the most possible if there are none."""
    started = [trial.seeds_started for trial in trials.trials if trial.has_final_seeds]
    if not started:
        return trials.seeds
    return sum(started) / len(started)
