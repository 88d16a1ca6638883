"""Keeps the runs of a sweep below a size on disk."""

import os
from pathlib import Path

from rlrun.rundir import SNAPSHOTS
from rlrun.snapshot import atomic
from rlrun.sweep.runs import Runs
from rlrun.sweep.trials import Trial, Trials


def remove_snapshots(runs: Runs, trials: Trials, limit: int, keep: int) -> int:
    """Removes snapshots of trials that fell behind, worst first, until the runs have at most `limit` bytes.

    keep: how many of the best trials keep theirs. Trials that are to train on keep theirs too. A run without snapshots
    that is promoted after all is trained from the start, which gives the same run. Returns the size that is left.
    """
    size = size_of(runs.folder)
    for trial in lost(trials, keep):
        for job in [*trial.jobs(trial.rung), *trial.fresh_jobs(trials.last)]:
            if size <= limit:
                return size
            snapshots = runs.path(job) / SNAPSHOTS
            if snapshots.is_dir() and not runs.is_running(job):
                size -= size_of(snapshots)
                atomic.remove(snapshots)
    return size


def lost(trials: Trials, keep: int) -> list[Trial]:
    """Returns the trials that do not train now and are not among the best, the worst first."""
    training = {job.trial for job in trials.open_jobs()}
    ranked = trials.best()
    behind = [trial for trial in trials.trials if trial not in ranked] + ranked[keep:][::-1]
    return [trial for trial in behind if trial.number not in training and trial.number != trials.winner]


def size_of(folder: Path) -> int:
    """Returns the bytes of all files below a folder. Files that vanish meanwhile do not count."""
    size = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                size += os.lstat(os.path.join(place, name)).st_size
            except FileNotFoundError:
                continue
    return size
