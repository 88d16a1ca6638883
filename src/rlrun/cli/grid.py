"""The jobs of a grid, `rlrun train -m`: their progress, and the table of their results."""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlrun.cli.tail import FollowedRun
from rlrun.cluster import Command, Ended
from rlrun.cluster.task import last_error
from rlrun.config.jobs import Job, own_words
from rlrun.errors import ConfigError, printable
from rlrun.report.runs import sound
from rlrun.run.signals import CODES
from rlrun.rundir import CONFIG, RunDir
from rlrun.telemetry.formatting import number

WAITING = "waiting"
IN_USE = "in use"  # not started, because a process of an earlier command trains the run
TRAINING = "training"
FAILED = "failed"
STOPPED = "stopped"  # by a signal
GOOD = ("done", "paused")  # statuses of runs that have ended as their config says


@dataclass
class GridJob:
    """A job of a grid: its command, and the progress of its run."""

    label: str  # such as `job 1 of 6`
    own_words: str  # the words that not all jobs share, for display
    command: Command  # its name is the folder of the run
    status: str = WAITING
    run: FollowedRun | None = None  # None until the run has a config

    @property
    def path(self) -> Path:
        """The folder of the run."""
        return Path(self.command.name)

    @property
    def is_open(self) -> bool:
        """Whether the job has not ended."""
        return self.status in (WAITING, IN_USE, TRAINING)

    @property
    def fraction_done(self) -> float:
        """The fraction of the job that is done, 0 to 1."""
        if not self.is_open:
            return 1.0
        if self.run is None:
            return 0.0
        return self.run.view.done

    def summary(self) -> dict[str, Any]:
        """Returns summary.json of the run, or {} if there is none."""
        with contextlib.suppress(ConfigError):
            return RunDir.summary_of(self.path)
        return {}

    def read(self) -> None:
        """Updates the view of the run with its new log rows."""
        with contextlib.suppress(ConfigError, OSError):  # the process of the run may remove its folder
            if self.run is None and (self.path / CONFIG).is_file():
                self.run = FollowedRun(self.path)
            if self.run is not None:
                for row in self.run.read():
                    self.run.view.add(row)
                    self.run.view.move(row["step"])

    def result(self) -> tuple[str, ...]:
        """Returns the row of this job, which has ended, in the table of results."""
        if not (self.path / CONFIG).is_file():
            return (self.own_words, "no run", "", "", "", "")
        self.read()
        step = 0
        if self.run is not None:
            step = self.run.view.step
        figures = {"step": step, **sound(self.summary())}  # a run that was killed has no summary
        returns = []
        for key in ("final_return", "best_return"):
            value = figures.get(key)
            returns.append("" if value is None else number(value))
        return (self.own_words, self.status, f"{figures['step']:,}", *returns, str(self.path))

    def end(self, ended: Ended) -> str:
        """Records the end of the job. Returns why it failed, or "" if it did not."""
        code = ended.exit_code
        self.status = FAILED
        if code == 0:
            status = self.summary().get("status")
            if status not in GOOD:
                return "its process exited without an error before the run was done"  # an environment may do this
            self.status = status
            return ""
        if code in CODES.values():
            self.status = STOPPED
        if code is None:
            return "its exit code is not known, because the process that started it was killed"
        if code < 0:
            return f"its process was killed by signal {-code}"
        return last_error(self.command.log)


class GridProgress:
    """The progress of all jobs of a grid."""

    def __init__(self, jobs: Sequence[Job], commands: Sequence[Command]):
        """commands: one for each job."""
        shared = set(jobs[0].words)
        for job in jobs:
            shared &= set(job.words)
        self.jobs: list[GridJob] = []
        for index, (job, command) in enumerate(zip(jobs, commands, strict=True), start=1):
            own = own_words(job.words, shared) or job.words
            self.jobs.append(GridJob(f"job {index} of {len(jobs)}", printable(" ".join(own)), command))
        self._started = time.monotonic()
        self._speed = 0.0  # jobs per second of one worker, as last measured

    @property
    def elapsed_s(self) -> float:
        """Seconds since this command started."""
        return time.monotonic() - self._started

    @property
    def fraction_done(self) -> float:
        """The mean over all jobs of the fraction that is done."""
        return sum(job.fraction_done for job in self.jobs) / len(self.jobs)

    @property
    def failed(self) -> int:
        """The number of jobs that have ended without a result."""
        return sum(job.status in (FAILED, STOPPED) for job in self.jobs)

    @property
    def training(self) -> list[GridJob]:
        """The jobs that train now."""
        return [job for job in self.jobs if job.status == TRAINING]

    def left_s(self) -> float | None:
        """Returns the estimated seconds left, or None if no run trains now or no speed is known.

        The speed is that of the runs that train now, or that of the last call if theirs is not known yet.
        """
        views = [job.run.view for job in self.training if job.run is not None]
        speeds = [view.speed / view.total_steps for view in views if view.speed > 0]
        if speeds:
            self._speed = sum(speeds) / len(speeds)
        if not any(job.is_open for job in self.jobs):
            return 0.0
        if not self._speed or not views:
            return None
        return (1 - self.fraction_done) * len(self.jobs) / (self._speed * len(self.training))

    def results(self) -> list[tuple[str, ...]]:
        """Returns the table of results: a heading, and a row for each job."""
        return [("job", "status", "steps", "final", "best", "run"), *(job.result() for job in self.jobs)]
