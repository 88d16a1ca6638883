"""The jobs of a grid: how far each is, and the table of their results."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlrun.cli.tail import FollowedRun
from rlrun.cluster import Command, Ended
from rlrun.cluster.task import last_error
from rlrun.config.jobs import Job
from rlrun.errors import ConfigError, printable
from rlrun.report.runs import sound
from rlrun.run.signals import CODES
from rlrun.rundir import CONFIG, RunDir
from rlrun.telemetry.formatting import number

WAITING, IN_USE, TRAINING, FAILED, STOPPED = "waiting", "in use", "training", "failed", "stopped"
GOOD = ("done", "paused")  # statuses of runs that have ended as their config says


def unequal_presets(jobs: Sequence[Job]) -> Iterator[str]:
    """Yields a line for each environment in which some jobs have a preset and others have none, unless it was typed."""
    algos: dict[str, dict[str | None, str]] = {}  # by environment and preset, the algorithm of the first job
    for job in jobs:
        typed = dict(word.split("=", 1) for word in job.words if "=" in word)
        if "preset" not in typed:
            algos.setdefault(job.values["env"]["id"], {}).setdefault(job.values["preset"], typed["algo"])
    for env, found in algos.items():
        presets = [preset for preset in found if preset is not None]
        if None not in found or not presets:
            continue
        line = (
            f"{env}: algo={found[presets[0]]} has preset {presets[0]}, algo={found[None]} has none, so their settings"
        )
        line += " differ; preset=none makes them equal"
        if len(presets) == 1:
            line += f", and so does preset={presets[0]} if algo={found[None]} has its keys"
        yield line


@dataclass
class GridJob:
    """A job of a grid: its command, and what is known of its run."""

    label: str  # `job 1 of 6`
    words: str  # those that not all jobs share
    command: Command
    status: str = WAITING
    run: FollowedRun | None = None  # once the run has a config

    @property
    def path(self) -> Path:
        """The folder of the run."""
        return Path(self.command.name)

    @property
    def is_open(self) -> bool:
        """Whether the job has not ended."""
        return self.status in (WAITING, IN_USE, TRAINING)

    @property
    def done(self) -> float:
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
        """Shows the new rows of the run to its view."""
        with contextlib.suppress(ConfigError, OSError):  # the process of the run may remove its folder
            if self.run is None and (self.path / CONFIG).is_file():
                self.run = FollowedRun(self.path)
            if self.run is not None:
                for row in self.run.read():
                    self.run.view.add(row)
                    self.run.view.move(row["step"])

    def row(self) -> tuple[str, ...]:
        """Returns the row of a job that has ended in the table of results."""
        if not (self.path / CONFIG).is_file():
            return (self.words, "no run", "", "", "", "")
        self.read()
        step = 0
        if self.run is not None:
            step = self.run.view.step
        figures = {"step": step, **sound(self.summary())}  # a run that was killed has no summary
        returns = []
        for key in ("final_return", "best_return"):
            value = figures.get(key)
            returns.append("" if value is None else number(value))
        return (self.words, self.status, f"{figures['step']:,}", *returns, str(self.path))

    def end(self, ended: Ended) -> str:
        """Records the end of the job. Returns why it failed, or "" if it did not."""
        code = ended.exit_code
        self.status = FAILED
        if code == 0:
            status = self.summary().get("status")
            if status not in GOOD:
                return "its process ended before the run"  # an environment may end it
            self.status = status
            return ""
        if code in CODES.values():
            self.status = STOPPED
        if code is None:
            return "the process that started it was killed"
        if code < 0:
            return f"its process was killed by signal {-code}"
        return last_error(self.command.log)


class JobGrid:
    """The jobs of a grid, in their order."""

    def __init__(self, jobs: Sequence[Job], commands: Sequence[Command]):
        """commands: of the jobs."""
        shared = set.intersection(*(set(job.words) for job in jobs))
        self.jobs: list[GridJob] = []
        for place, (job, command) in enumerate(zip(jobs, commands, strict=True), 1):
            own = [word for word in job.words if word not in shared] or job.words
            self.jobs.append(GridJob(f"job {place} of {len(jobs)}", printable(" ".join(own)), command))
        self._started = time.monotonic()
        self._speed = 0.0  # jobs per second of one worker, as last measured

    @property
    def elapsed_s(self) -> float:
        """Seconds since this command started."""
        return time.monotonic() - self._started

    @property
    def done(self) -> float:
        """The fraction of all jobs that is done, about."""
        return sum(job.done for job in self.jobs) / len(self.jobs)

    @property
    def failed(self) -> int:
        """The number of jobs that have ended without a result."""
        return sum(job.status in (FAILED, STOPPED) for job in self.jobs)

    @property
    def training(self) -> list[GridJob]:
        """The jobs at work."""
        return [job for job in self.jobs if job.status == TRAINING]

    def left_s(self) -> float | None:
        """Returns the seconds left at the speed of the runs at work, about, or None if it is unknown."""
        views = [job.run.view for job in self.training if job.run is not None]
        speeds = [view.speed / view.total_steps for view in views if view.speed > 0]
        if speeds:
            self._speed = sum(speeds) / len(speeds)
        if not any(job.is_open for job in self.jobs):
            return 0.0
        if not self._speed or not views:
            return None
        return (1 - self.done) * len(self.jobs) / (self._speed * len(self.training))

    def rows(self) -> list[tuple[str, ...]]:
        """Returns a heading and a row for each job: the words not shared by all jobs, status, steps, final and best
        return, and folder of the run."""
        return [("job", "status", "steps", "final", "best", "run"), *(job.row() for job in self.jobs)]
