"""Keeps the runs of a sweep below a size on disk."""

import os
from collections.abc import Iterable
from pathlib import Path

from rlrun.rundir import SNAPSHOTS
from rlrun.snapshot import atomic
from rlrun.sweep.runs import Runs
from rlrun.sweep.trials import RungJob


def remove_snapshots(runs: Runs, dispensable: Iterable[RungJob], limit: int) -> int:
    """Removes the snapshots of dispensable runs in turn until all runs have at most `limit` bytes.

    If such a run is continued later, it trains again from the start, with the same result. Returns the remaining size.
    """
    size = size_of(runs.folder)
    for job in dispensable:
        if size <= limit:
            break
        run = runs.path(job)
        snapshots = run / SNAPSHOTS
        if snapshots.is_dir() and not run.is_symlink() and not runs.is_running(job):
            atomic.remove(snapshots)
            size = size_of(runs.folder)
    return size


def size_of(folder: Path) -> int:
    """Returns the bytes of the files below a folder. A file with several hard links counts once. Files may be removed
    during the call."""
    sizes = {}
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                status = os.lstat(os.path.join(place, name))
            except FileNotFoundError:
                continue
            sizes[status.st_ino] = status.st_size
    return sum(sizes.values())
