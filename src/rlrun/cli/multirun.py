"""The table of results of a sweep, one row for each job. Read from the files of the runs, which may be trained by other
processes or machines."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlrun.cli.columns import print_columns
from rlrun.config.jobs import Job
from rlrun.config.resumable import free, same_run
from rlrun.config.stored import read_config
from rlrun.errors import ConfigError
from rlrun.rundir import CONFIG, runs_of

if TYPE_CHECKING:
    from rlrun.report.runs import StoredRun


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
    run: StoredRun = runs[0]
    shown = []
    for key in ("final_return", "best_return"):
        value = run.summary.get(key)
        shown.append("" if value is None else number(value))
    ended = "running" if run.state == "running" else "failed"  # used if the run was killed and has no summary
    return (run.summary.get("status", ended), f"{run.summary.get('step', run.step):,}", *shown, str(path))
