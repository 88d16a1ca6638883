"""Runs of a population: their hyperparameters change while they train, and they may start as a copy of another run.

The changes are a schedule, `algo.schedule`, so that one run with the whole schedule trains exactly like the chain of
runs from which the schedule comes.
"""

from pathlib import Path

from rlrun import dotted, files
from rlrun.config.compose import literal
from rlrun.lock import LOCK
from rlrun.rundir import SNAPSHOTS, SUMMARY
from rlrun.snapshot import atomic
from rlrun.sweep.runs import Runs
from rlrun.sweep.trials import RungJob, Trial

ALGO = "algo."
SCHEDULE = "algo.schedule"
LATEST = "LATEST"


class BranchingRuns(Runs):
    """As `Runs`, for the trials of a population."""

    def settings(self, trial: Trial) -> dict[str, object]:
        return trial.start_values | {SCHEDULE: schedule(trial)}

    def command(self, job: RungJob, trial: Trial) -> list[str]:
        if not (self.path(job) / SNAPSHOTS / LATEST).exists():
            return super().command(job, trial)
        words = ["resume", str(self.path(job)), f"{SCHEDULE}={literal(schedule(trial))}"]
        words += [word for word in self.templates[job.env].words if word.startswith("plugins=")]
        return [*words, *self.pause_words(job)]

    def prepare(self, job: RungJob, trial: Trial) -> None:
        if job.branch and not self.path(job).exists():
            copy_run(self.path(trial.branches[job.branch - 1].source), self.path(job))


def schedule(trial: Trial) -> dict[str, object]:
    """Returns the section `algo.schedule` with all changes of a trial's values. It also has the values that have not
    changed yet, because numbers on a schedule are tensors, which may round differently."""
    tree: dict[str, object] = {}
    for key in trial.start_values:
        points = {
            "values": [change.values[key] for change in trial.changes],
            "at": [change.step for change in trial.changes],
        }
        dotted.put(key.removeprefix(ALGO), {"piecewise": points}, tree)
    return tree


def copy_run(source: Path, target: Path) -> None:
    """Copies a run that no process trains. The copy appears in one step, with hard links to the snapshot files."""
    partial = target.with_name(f".{target.name}")
    atomic.remove(partial)
    partial.mkdir()
    for path in sorted(source.rglob("*")):
        place = partial / path.relative_to(source)
        if path.is_dir():
            place.mkdir()
        elif path.parent == source and path.name in (LOCK, SUMMARY):
            continue
        elif path.is_relative_to(source / SNAPSHOTS) and path.name != LATEST:
            atomic.link(path, place)
        else:
            atomic.replace_file(place, files.read_lines(path))
    atomic.rename(partial, target)
