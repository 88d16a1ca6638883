"""The Python API of rlrun: train a run, load its policy. `import rlrun` provides `train` and `load`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlrun.config.check import show
from rlrun.config.jobs import jobs
from rlrun.errors import RunError
from rlrun.run.job import train_job
from rlrun.run.policy import Policy, load
from rlrun.rundir import METRICS, RunDir
from rlrun.telemetry.metrics import read_rows

__all__ = ["Policy", "Run", "load", "train"]


@dataclass(frozen=True)
class Run:
    """A run on disk, with its results."""

    path: Path

    @property
    def summary(self) -> dict[str, Any]:
        """The content of summary.json: status, step, final_return, best_return, wall_s, ..."""
        return RunDir.summary_of(self.path)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The log rows of metrics.jsonl, in order."""
        return read_rows(self.path / METRICS)


def train(*words: str, **settings: Any) -> Run:
    """Trains one run like `rlrun train` with the same arguments: `train("algo=sac", "env=Pendulum", seed=1)`.

    Raises ConfigError, with one line for each fault, if a setting is invalid, and RunError if the run fails.
    """
    typed = [*words, *(f"{key}={show(value)}" for key, value in settings.items())]
    (job,) = jobs(typed)
    done = train_job(job)
    run = Run(done.path)
    if done.exit_code:
        raise RunError(f"{run.path}: {run.summary.get('status')}, exit code {done.exit_code}")
    return run
