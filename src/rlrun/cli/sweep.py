"""What came of a sweep: a row for each of its jobs, from what their runs left on disk, whichever process ran them."""

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
    """The runs of some jobs. To be made before the first job starts: what is there by then belongs to no job of this
    sweep, unless it is gone on with (resume=auto)."""

    def __init__(self, jobs: Sequence[Job]):
        self.jobs = jobs
        self.before = {path for job in jobs for path in runs_of(job.values)}

    def show(self) -> None:
        """Print the rows, if any job has a run."""
        heading, *rows = self.rows()
        if any(row[-1] for row in rows):
            print_columns([heading, *rows])

    def rows(self) -> list[tuple[str, ...]]:
        """The words that tell a job from the others, how its run ended, its steps, final and best return, its folder;
        below a heading."""
        shared = set.intersection(*(set(job.words) for job in self.jobs))
        taken: set[Path] = set()
        rows = [("job", "status", "steps", "final", "best", "run")]
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
        """The latest run of this job. A sweep over what a run may change (FREE) has several of the same config; then it
        is the one whose values are the job's."""
        gone = taken if job.values["resume"] == "auto" else taken | self.before
        configs = {path: _config(path) for path in runs_of(job.values) if path not in gone}
        found = [path for path, config in configs.items() if same_run(config, job.values)]
        return max(found, key=lambda path: free(configs[path]) == free(job.values), default=None)


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
    returns = [run.summary.get(key) for key in ("final_return", "best_return")]
    shown = ["" if value is None else number(value) for value in returns]
    ended = "running" if run.state == "running" else "failed"  # without a summary it came to no orderly end
    return (run.summary.get("status", ended), f"{run.summary.get('step', run.step):,}", *shown, str(path))
