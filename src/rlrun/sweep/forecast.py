"""How many steps a sweep still trains, about, and how long that takes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlrun.sweep.pruning import pruning
from rlrun.sweep.settings import PbtConfig, SweepConfig
from rlrun.sweep.standings import job_steps, totals
from rlrun.sweep.trials import Trials


@dataclass(frozen=True)
class Forecast:
    """What has been trained, and what is still to come."""

    steps: int  # trained so far
    left: float  # steps that are still to come, about
    speed: float  # steps per second of one worker, 0 if it is not known yet
    workers: int

    def left_s(self, ahead: float = 0.0) -> float | None:
        """Returns the seconds left, or None if no run has ended. ahead: steps of runs at work that are done."""
        if not self.speed:
            return None
        return max(0.0, self.left - ahead) / (self.speed * self.workers)

    def done(self, ahead: float = 0.0) -> float:
        """Returns the fraction of all steps that are done."""
        if not self.left:
            return 1.0
        return min(1.0, (self.steps + ahead) / (self.steps + self.left))


def forecast(trials: Trials, cfg: SweepConfig, courses: Mapping[str, Sequence[int]], planned: int) -> Forecast:
    """Returns what is to be expected from the trials so far.

    courses: environment -> steps of the rungs. planned: number of trials of the whole sweep.
    """
    taken = totals(trials, courses)
    speed = taken.steps / taken.seconds if taken.seconds else 0.0
    if trials.winner is not None:
        return Forecast(taken.steps, 0.0, speed, cfg.workers)
    expected = -float(taken.steps)
    share = pruning(cfg.prune).share
    if isinstance(cfg.kind, PbtConfig):
        share = 1.0
    for steps in courses.values():
        before = 0
        for rung, step in enumerate(steps):
            # trials that are ruled out after a few seeds do not train on
            seeds = cfg.seeds if rung else _seeds(trials)
            expected += planned * share**rung * seeds * (step - before)
            before = step
        expected += min(cfg.winners, planned) * cfg.fresh_seeds * steps[-1]
    still_open = sum(job_steps(job, trials, courses) for job in trials.open_jobs())
    return Forecast(taken.steps, max(still_open, expected), speed, cfg.workers)


def _seeds(trials: Trials) -> float:
    """Returns the mean number of seeds of the trials that get no more, or of all that one can have."""
    started = [trial.seeds_started for trial in trials.trials if trial.is_complete]
    if not started:
        return trials.seeds
    return sum(started) / len(started)
