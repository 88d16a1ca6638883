"""The runs of a sweep: the command of a job, and what the files of its run say about it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rlrun import lock
from rlrun.cluster.task import last_error
from rlrun.config.compose import literal
from rlrun.errors import ConfigError, printable
from rlrun.formats.numbers import LAST_STEP, is_number, is_whole
from rlrun.rundir import METRICS, SUMMARY, read_json
from rlrun.sweep.scoring import Scoring
from rlrun.sweep.trials import Result, RungJob, Trial
from rlrun.sweep.untrusted import Confirmed
from rlrun.telemetry.metrics import whole_rows


class Outcome(NamedTuple):
    """How a job has ended: with a result, or with the reason why there is none."""

    result: Result | None
    why: str = ""  # there is no result


@dataclass(frozen=True)
class RunTemplate:
    """What all runs in one environment share."""

    words: Sequence[str]  # settings, as typed
    rung_steps: Sequence[int]  # the step of each rung, at which runs pause; at the last one they end


class Runs:
    """The folder `trials/` of a sweep, in which each run has a folder and a log."""

    def __init__(
        self,
        folder: Path,
        templates: Mapping[str, RunTemplate],
        metric: str,
        scoring: Scoring,
        confirmed: Confirmed | None = None,
    ):
        """templates: by environment, as typed. metric: key of the log rows. confirmed: None for a sweep that the user
        has typed, which may name code and files."""
        self.folder, self.templates, self.metric, self.scoring = folder, templates, metric, scoring
        self.confirmed = confirmed

    def settings(self, trial: Trial) -> dict[str, object]:
        """Returns the settings of a trial's runs that other trials do not share, by dotted key."""
        return trial.values

    def prepare(self, job: RungJob, trial: Trial) -> None:
        """Is called for each open job before new jobs start."""

    def check(self, job: RungJob, trial: Trial) -> None:
        """Raises ConfigError if the sweep was read from disk, and the run of a job has another folder than that of the
        job, or uses code, files or addresses that the user has not confirmed."""
        if self.confirmed is None:
            return
        folder = str(self.path(job))
        composed = self.confirmed.check_run(self.words_to_end(job, trial, self.path(job)))
        if composed["run_dir"] != folder:
            raise ConfigError(f"run_dir={printable(composed['run_dir'])}: must be {printable(folder)}")

    def command(self, job: RungJob, trial: Trial) -> list[str]:
        """Returns the words after `rlrun` that train a job. If its run has begun, the same words continue it."""
        return ["train", *self.words_to_end(job, trial, self.path(job)), *self.pause_words(job)]

    def words_to_end(self, job: RungJob, trial: Trial, target: Path) -> list[str]:
        """Returns the words after `rlrun train` that train the run of a job in folder `target` to the last rung."""
        shared = self.templates[job.env].words
        own = [f"{key}={literal(value)}" for key, value in self.settings(trial).items()]
        own += [f"seed={job.seed}", f"run_dir={literal(str(target))}", "resume=auto"]
        if not any(word.startswith("logger=") for word in shared):
            own.append("logger=[]")
        return [*shared, *own]

    def pause_words(self, job: RungJob) -> list[str]:
        """Returns the word that pauses the run of a job at its rung, or [] if this is the last rung."""
        rung_steps = self.templates[job.env].rung_steps
        if job.rung == len(rung_steps) - 1:
            return []
        return [f"trainer.stop_at={rung_steps[job.rung]}"]

    def path(self, job: RungJob) -> Path:
        return self.folder / job.folder

    def log(self, job: RungJob) -> Path:
        """The file with the output of the run."""
        return self.folder / f"{job.folder}.log"

    def is_running(self, job: RungJob) -> bool:
        """Returns whether any process trains the run of this job, even if another driver started it."""
        return lock.holder(self.path(job)) is not None

    def outcome(self, job: RungJob) -> Outcome | None:
        """Returns the outcome of a job whose process has ended, or None if that was before the job's rung: the process
        was killed or stopped."""
        goal = self.templates[job.env].rung_steps[job.rung]
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
        """Returns the result of a job from the log rows up to the first evaluation at or after its rung.

        Raises ConfigError if a row is damaged, and OSError if metrics.jsonl cannot be read.
        """
        rung_steps = self.templates[job.env].rung_steps
        steps: list[int] = []
        evaluations: list[float] = []
        seconds: Any = None
        logged: set[str] = set()
        for row in whole_rows(self.path(job) / METRICS):
            logged |= row.keys()
            if self.metric in row:
                if not is_number(row[self.metric]):
                    return Outcome(None, f"{METRICS}: {self.metric} at step {row['step']:,} is not a finite number")
                steps.append(row["step"])
                evaluations.append(self.scoring.normalized(job.env, row[self.metric]))
                seconds = row.get("wall_s")
                if steps[-1] >= rung_steps[job.rung]:
                    break
        if not evaluations:
            known = ", ".join(sorted(key for key in logged if key.startswith("eval/")))
            return Outcome(None, f"no evaluation has {self.metric} (there are: {known})")
        if not is_number(seconds, 0):
            return Outcome(None, f"{METRICS}: wall_s at step {steps[-1]:,} is not a finite number of seconds")
        score = self.scoring.score(steps, evaluations, seconds, rung_steps[-1])
        result = Result(score, evaluations, seconds, steps[-1])
        if not result.is_sound:
            return Outcome(None, f"its score, {score}, is not a finite number")
        return Outcome(result)
