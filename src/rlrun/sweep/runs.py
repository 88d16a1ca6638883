"""The runs of a sweep: the command of a job, and what the files of its run say about it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlrun import files, lock
from rlrun.config.compose import literal
from rlrun.errors import ConfigError
from rlrun.rundir import METRICS, SUMMARY, read_json
from rlrun.sweep.trials import Job
from rlrun.telemetry.metrics import read_rows


class Outcome(NamedTuple):
    """The result of a job: evaluations, or why there are none."""

    evaluations: list[float]  # up to the rung; the last is the score; [] if there is none
    why: str = ""
    step: int = 0


class Runs:
    """The folder `trials/` of a sweep, in which each run has a folder and a log."""

    def __init__(self, folder: Path, words: Sequence[str], steps: Sequence[int], metric: str):
        """words: the settings that all runs share. steps: at which each rung pauses. metric: the score of a run."""
        self.folder, self.words, self.steps, self.metric = folder, list(words), list(steps), metric

    def command(self, job: Job, values: Mapping[str, Any]) -> list[str]:
        """Returns the words after `rlrun`. Typed again, the command continues the run."""
        own = [f"{key}={literal(value)}" for key, value in values.items()]
        places = [f"seed={job.seed}", f"run_dir={self.path(job)}", "resume=auto", "logger=[]"]
        if job.rung < len(self.steps) - 1:
            places.append(f"trainer.stop_at={self.steps[job.rung]}")
        return ["train", *self.words, *own, *places]

    def path(self, job: Job) -> Path:
        return self.folder / job.folder

    def log(self, job: Job) -> Path:
        """The file with the output of the run."""
        return self.folder / f"{job.folder}.log"

    def is_running(self, job: Job) -> bool:
        """Returns whether a process trains the run of this job, also one that another driver started."""
        return lock.holder(self.path(job)) is not None

    def outcome(self, job: Job) -> Outcome | None:
        """Returns the result of a job whose run has ended, or None if the run was killed or stopped on the way."""
        try:
            summary = read_json(self.path(job) / SUMMARY)
        except ConfigError as error:
            return Outcome([], str(error))
        status, step = summary.get("status"), summary.get("step", 0)
        if status == "failed":
            return Outcome([], self.last_error(job))
        if status == "done" or (status == "paused" and step >= self.steps[job.rung]):
            evaluations = self._evaluations(job)
            if not evaluations:
                return Outcome([], f"no evaluation has {self.metric}")
            return Outcome(evaluations, step=step)
        return None

    def last_error(self, job: Job) -> str:
        """Returns the last error in the log of a run, as one line."""
        try:
            lines = files.read(self.log(job), files.METRICS_BYTES).decode(errors="replace").splitlines()
        except (OSError, ConfigError):
            lines = []
        for line in reversed(lines):
            if line.startswith("error: "):
                return line.removeprefix("error: ")
        if lines:
            return lines[-1]
        return "it ended without a message"

    def _evaluations(self, job: Job) -> list[float]:
        """Returns the metric of all rows that have it, up to the first one at or after the rung."""
        found = []
        for row in read_rows(self.path(job) / METRICS):
            if self.metric in row:
                found.append(float(row[self.metric]))
                if row["step"] >= self.steps[job.rung]:
                    break
        return found
