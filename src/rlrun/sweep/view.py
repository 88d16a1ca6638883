"""What a console shows of a sweep: trials that train now, the best ones, and time left. Independent of terminals."""

import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from rlrun.errors import printable
from rlrun.sweep.forecast import Forecast, forecast
from rlrun.sweep.settings import SweepConfig
from rlrun.sweep.standings import Standing, Totals, differing_keys, job_steps, ranked, standings, totals, values_text
from rlrun.sweep.trials import RungJob, Trials
from rlrun.telemetry.formatting import number


class SweepView:
    """The state of a sweep. `see` takes the trials after each event, `move` the jobs that train now."""

    def __init__(self, path: Path, cfg: SweepConfig, rung_steps: Mapping[str, Sequence[int]], planned: int):
        """rung_steps: environment -> step of each rung. planned: number of trials of the whole sweep."""
        self.title, self.place = printable(f"sweep · {path.name}"), printable(path)
        self.cfg, self.rung_steps, self.planned = cfg, rung_steps, planned
        self.running: dict[RungJob, float] = {}  # jobs that train now -> when `move` first received them
        self._started = self.now()
        self.see(Trials([*rung_steps], cfg.seeds, 0))

    def now(self) -> float:
        """Returns the time in seconds. Only differences count."""
        return time.monotonic()

    def see(self, trials: Trials) -> None:
        """Takes the trials. `move` computes what is shown of them."""
        self.trials = trials
        self._is_stale = True

    def move(self, running: Collection[RungJob]) -> None:
        """Takes the jobs that train now, and computes what has changed."""
        now = self.now()
        self.running = {job: self.running.get(job, now) for job in running}
        if self._is_stale:
            self.standings = standings(self.trials)
            self.best = ranked(self.trials, self.standings)
            self.names = differing_keys(self.trials)
            self.totals: Totals = totals(self.trials, self.rung_steps)
            self.forecast: Forecast = forecast(self.trials, self.cfg, self.rung_steps, self.planned)
            self.open_jobs = len(self.trials.open_jobs())
            self._is_stale = False

    @property
    def working(self) -> list[Standing]:
        """The trials that train now, those at the highest rung first."""
        numbers = dict.fromkeys(job.trial for job in sorted(self.running, key=lambda job: (-job.rung, job.trial)))
        return [self.standings[number] for number in numbers]

    @property
    def elapsed_s(self) -> float:
        """Seconds since this command started."""
        return self.now() - self._started

    @property
    def ahead(self) -> float:
        """Estimated steps that running jobs have done already."""
        found = 0.0
        for job, since in self.running.items():
            steps = job_steps(job, self.trials, self.rung_steps)
            found += min(steps, self.forecast.speed * (self.now() - since))
        return found

    @property
    def fraction_done(self) -> float:
        """The estimated fraction of all steps that are done."""
        return self.forecast.fraction_done(self.ahead)

    @property
    def left_s(self) -> float | None:
        """Estimated seconds left, or None if no job has a result."""
        return self.forecast.left_s(self.ahead)


def table(
    found: Sequence[Standing], trials: Trials, names: Mapping[str, str], working: Collection[int] = ()
) -> list[list[str]]:
    """Returns a header and a row for each trial. names: short names of the shown keys. working: numbers of the trials
    that train now."""
    rows = [["trial", "rung", "seeds", "score", "fresh", "state", "values"]]
    for one in found:
        trial = one.trial
        rung = trial.rung
        if one.number not in working:
            state = one.state
            if one.rung is not None:
                rung = one.rung
            jobs = trial.jobs(rung)
        elif trial.fresh_seeds:
            state = "fresh seeds"
            jobs = trial.fresh_jobs()
        else:
            state = "training"
            jobs = trial.jobs(rung)
        seeds = len(jobs) // len(trial.envs)
        done = sum(job in trial.results for job in jobs) // len(trial.envs)
        score = "" if one.score is None else number(one.score)
        fresh = "" if one.fresh is None else number(one.fresh)
        reached = f"{rung + 1}/{trials.last_rung + 1}"
        text = values_text(trial.values, names)
        rows.append([str(one.number), reached, f"{done}/{seeds}", score, fresh, state, text])
    return rows
