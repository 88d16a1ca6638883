"""The table of results of a sweep, one row for each job. Read from the files of the runs, which may be trained by other
processes or machines."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlrun.cli.columns import print_columns
from rlrun.config.jobs import Job
from rlrun.config.resumable import free, same_run
from rlrun.config.stored import read_config
from rlrun.errors import ConfigError
from rlrun.rundir import CONFIG, runs_of

if TYPE_CHECKING:
    from rlrun.report.runs import Run


class Results:
    """The runs of the jobs of a sweep. Create an instance before the first job starts: runs that exist already belong
    to no job, unless the jobs have resume=auto."""

    def __init__(self, jobs: Sequence[Job]):
        self.jobs = jobs
        self.before: set[Path] = set()
        for job in jobs:
            self.before.update(runs_of(job.values))

    def show(self) -> None:
        """Prints the table if any job has a run."""
        heading, *rows = self.rows()
        if any(row[-1] for row in rows):
            print_columns([heading, *rows])

    def rows(self) -> list[tuple[str, ...]]:
        """Returns a heading and a row for each job: the words not shared by all jobs, status, steps, final and best
        return, and folder of the run."""
        shared = set.intersection(*(set(job.words) for job in self.jobs))
        taken: set[Path] = set()
        rows: list[tuple[str, ...]] = [("job", "status", "steps", "final", "best", "run")]
        for job in self.jobs:
            name = " ".join([word for word in job.words if word not in shared] or job.words)
            path = self.folder(job, taken)
            if path is None:
                rows.append((name, "no run", "", "", "", ""))
                continue
            taken.add(path)
            rows.append((name, *_figures(path)))
        return rows

    def folder(self, job: Job, taken: set[Path]) -> Path | None:
        """Returns the latest run of this job, or None.

        Jobs may differ only in settings that a resumed run may change (`FREE`). Then the run with all values of the job
        takes precedence over other runs.
        """
        others = taken
        if job.values["resume"] != "auto":
            others = taken | self.before
        found = None
        for path in runs_of(job.values):
            config = _config(path)
            if path in others or not same_run(config, job.values):
                continue
            if free(config) == free(job.values):
                return path
            found = found or path
        return found


def _config(path: Path) -> dict[str, Any]:
    try:
        return read_config(path / CONFIG)
    except ConfigError:
        return {}


def _figures(path: Path) -> tuple[str, ...]:
    from rlrun.report.runs import read
    from rlrun.telemetry.view import number

    runs, _ = read([path])
    if not runs:
        return ("unreadable", "", "", "", str(path))
    run: Run = runs[0]
    shown = []
    for key in ("final_return", "best_return"):
        value = run.summary.get(key)
        shown.append("" if value is None else number(value))
    ended = "running" if run.state == "running" else "failed"  # used if the run was killed and has no summary
    return (run.summary.get("status", ended), f"{run.summary.get('step', run.step):,}", *shown, str(path))
