"""The runs of a sweep: the command of a job, and what the files of its run say about it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rlrun import lock
from rlrun.cluster.task import last_error
from rlrun.config.compose import literal
from rlrun.errors import ConfigError
from rlrun.formats.numbers import LAST_STEP, is_number, is_whole
from rlrun.rundir import METRICS, SUMMARY, read_json
from rlrun.sweep.scoring import Scoring
from rlrun.sweep.trials import Result, RungJob, Trial
from rlrun.sweep.untrusted import Confirmed
from rlrun.telemetry.metrics import whole_rows


class Outcome(NamedTuple):
    """How a job has ended: with a result, or with the reason why there is none."""

    result: Result | None
    why: str = ""


@dataclass(frozen=True)
class Course:
    """What the runs of one environment share."""

    words: Sequence[str]  # settings, as typed
    steps: Sequence[int]  # at which each rung pauses


class Runs:
    """The folder `trials/` of a sweep, in which each run has a folder and a log."""

    def __init__(
        self,
        folder: Path,
        courses: Mapping[str, Course],
        metric: str,
        scoring: Scoring,
        confirmed: Confirmed | None = None,
    ):
        """courses: by environment, as typed. metric: of the log rows. confirmed: of a sweep that was read from disk."""
        self.folder, self.courses, self.metric, self.scoring = folder, courses, metric, scoring
        self.confirmed = confirmed

    def settings(self, trial: Trial) -> dict[str, object]:
        """Returns the settings of a trial's runs, by dotted key, beside those that all runs share."""
        return trial.values

    def prepare(self, job: RungJob, trial: Trial) -> None:
        """Is called for every job before one of them starts."""

    def check(self, job: RungJob, trial: Trial) -> None:
        """Raises ConfigError if the run of a job reaches outside in a way that a sweep read from disk must not."""
        if self.confirmed is not None:
            self.confirmed.check_run(self.straight(job, trial, self.path(job)))

    def command(self, job: RungJob, trial: Trial) -> list[str]:
        """Returns the words after `rlrun`. Typed again, the command continues the run."""
        return ["train", *self.straight(job, trial, self.path(job)), *self.pause(job)]

    def straight(self, job: RungJob, trial: Trial, target: Path) -> list[str]:
        """Returns the words after `rlrun train` that train the run of a job to its end, in the folder `target`."""
        words = self.courses[job.env].words
        own = [f"{key}={literal(value)}" for key, value in self.settings(trial).items()]
        places = [f"seed={job.seed}", f"run_dir={literal(str(target))}", "resume=auto"]
        if not any(word.startswith("logger=") for word in words):
            places.append("logger=[]")
        return [*words, *own, *places]

    def pause(self, job: RungJob) -> list[str]:
        """Returns the word that pauses the run at its rung, or nothing if it trains to its end."""
        steps = self.courses[job.env].steps
        if job.rung == len(steps) - 1:
            return []
        return [f"trainer.stop_at={steps[job.rung]}"]

    def path(self, job: RungJob) -> Path:
        return self.folder / job.folder

    def log(self, job: RungJob) -> Path:
        """The file with the output of the run."""
        return self.folder / f"{job.folder}.log"

    def is_running(self, job: RungJob) -> bool:
        """Returns whether a process trains the run of this job, also one that another driver started."""
        return lock.holder(self.path(job)) is not None

    def outcome(self, job: RungJob) -> Outcome | None:
        """Returns the result of a job whose run has ended, or None if the run was killed or stopped on the way."""
        goal = self.courses[job.env].steps[job.rung]
        try:
            summary = read_json(self.path(job) / SUMMARY)
            status = summary.get("status")
            if status == "failed":
                return Outcome(None, last_error(self.log(job)))
            if status == "done" or (status == "paused" and is_whole(summary.get("step"), goal, LAST_STEP)):
                return self._scored(job)
        except (OSError, ConfigError) as error:
            return Outcome(None, str(error))
        return None

    def _scored(self, job: RungJob) -> Outcome:
        """Returns the result of a run from its rows, up to the first evaluation at or after the rung.

        Raises ConfigError if a line of them is damaged, and OSError if there are none.
        """
        course = self.courses[job.env]
        steps, evaluations = [], []
        seconds: Any = None
        measured: dict[str, object] = {}
        for row in whole_rows(self.path(job) / METRICS):
            measured |= row
            if self.metric in row:
                if not is_number(row[self.metric]):
                    return Outcome(None, f"{METRICS}: {self.metric} at step {row['step']:,} is not a finite number")
                steps.append(row["step"])
                evaluations.append(self.scoring.normalized(job.env, row[self.metric]))
                seconds = row.get("wall_s")
                if steps[-1] >= course.steps[job.rung]:
                    break
        if not evaluations:
            known = ", ".join(sorted(key for key in measured if key.startswith("eval/")))
            return Outcome(None, f"no evaluation has {self.metric} (there are: {known})")
        if not is_number(seconds, 0):
            return Outcome(None, f"{METRICS}: wall_s at step {steps[-1]:,} is not a finite number of seconds")
        score = self.scoring.score(steps, evaluations, seconds, course.steps[-1])
        result = Result(score, evaluations, seconds, steps[-1])
        if not result.is_sound:
            return Outcome(None, f"its score, {score}, is not a finite number")
        return Outcome(result)
