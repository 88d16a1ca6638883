"""What a console shows of a sweep: trials at work, the best ones, and time left. Independent of terminals."""

import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from rlrun.errors import printable
from rlrun.sweep.forecast import Forecast, forecast
from rlrun.sweep.settings import SweepConfig
from rlrun.sweep.standings import Standing, Totals, differing, job_steps, ranked, standings, totals, values_text
from rlrun.sweep.trials import RungJob, Trials
from rlrun.telemetry.view import number


class SweepView:
    """The state of a sweep. `see` takes the trials after each event, `move` the runs at work."""

    def __init__(self, path: Path, cfg: SweepConfig, courses: Mapping[str, Sequence[int]], planned: int):
        """courses: environment -> steps of the rungs. planned: number of trials of the whole sweep."""
        self.title, self.place = printable(f"sweep · {path.name}"), printable(path)
        self.cfg, self.courses, self.planned = cfg, courses, planned
        self.running: dict[RungJob, float] = {}  # when each run at work was first seen
        self._started = self.now()
        self.see(Trials([*courses], cfg.seeds, 0))

    def now(self) -> float:
        """Returns the time in seconds. Only differences count."""
        return time.monotonic()

    def see(self, trials: Trials) -> None:
        """Takes the trials. What is shown of them is computed when it is needed."""
        self.trials = trials
        self._is_stale = True

    def move(self, running: Collection[RungJob]) -> None:
        """Takes the runs at work, and computes what has changed."""
        now = self.now()
        self.running = {job: self.running.get(job, now) for job in running}
        if self._is_stale:
            self.standings = standings(self.trials)
            self.best = ranked(self.trials, self.standings)
            self.names = differing(self.trials)
            self.totals: Totals = totals(self.trials, self.courses)
            self.forecast: Forecast = forecast(self.trials, self.cfg, self.courses, self.planned)
            self.open_jobs = len(self.trials.open_jobs())
            self._is_stale = False

    @property
    def working(self) -> list[Standing]:
        """The trials at work, those that are furthest first."""
        numbers = dict.fromkeys(job.trial for job in sorted(self.running, key=lambda job: (-job.rung, job.trial)))
        return [self.standings[number] for number in numbers]

    @property
    def elapsed_s(self) -> float:
        """Seconds since this command started."""
        return self.now() - self._started

    @property
    def ahead(self) -> float:
        """Steps of the runs at work that are done, about."""
        found = 0.0
        for job, since in self.running.items():
            steps = job_steps(job, self.trials, self.courses)
            found += min(steps, self.forecast.speed * (self.now() - since))
        return found

    @property
    def done(self) -> float:
        """The fraction of all steps that are done, about."""
        return self.forecast.done(self.ahead)

    @property
    def left_s(self) -> float | None:
        """Seconds left, about, or None if no run has ended."""
        return self.forecast.left_s(self.ahead)


def table(
    found: Sequence[Standing], trials: Trials, names: Mapping[str, str], working: Collection[int] = ()
) -> list[list[str]]:
    """Returns a header and a row for each trial. names: short names of the shown keys. working: trials at work."""
    rows = [["trial", "rung", "seeds", "score", "fresh", "state", "values"]]
    for one in found:
        trial, state = one.trial, one.state
        rung = trial.rung if one.rung is None else one.rung
        jobs = trial.jobs(rung)
        if one.number in working:
            rung, state = trial.rung, "training"
            jobs = trial.jobs(rung)
            if trial.fresh_seeds:
                state, jobs = "fresh seeds", trial.fresh_jobs(trials.last)
        done, seeds = sum(job in trial.results for job in jobs) // len(trial.envs), len(jobs) // len(trial.envs)
        score = "" if one.score is None else number(one.score)
        fresh = "" if one.fresh is None else number(one.fresh)
        reached = f"{rung + 1}/{trials.last + 1}"
        text = values_text(trial.values, names)
        rows.append([str(one.number), reached, f"{done}/{seeds}", score, fresh, state, text])
    return rows
