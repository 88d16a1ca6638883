"""Removes folders that a run does not need to resume: old snapshots, and an outdated post-mortem."""

import stat
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from rlrun.errors import SnapshotError
from rlrun.run.postmortem import FACTS, FOLDER
from rlrun.rundir import RunDir, read_json
from rlrun.snapshot import atomic
from rlrun.snapshot.store import BEST, Store, step_of


def removable(run: Path) -> list[Path]:
    """Returns the folders that a run does not need, or [] if the run has no latest snapshot.

    They are the snapshots other than the latest and the best, and an outdated post-mortem.
    """
    store = Store(run)
    names, latest = store.names(), store.latest()
    if latest not in names:
        return []
    found = [store.folder / name for name in names if name not in (latest, BEST)]
    postmortem = run / FOLDER
    if postmortem.is_dir() and _fault_step(postmortem) < step_of(latest):
        found.append(postmortem)
    return found


def _fault_step(postmortem: Path) -> float:
    """Returns the step of the fault that a post-mortem describes, or infinity if it names no step."""
    step = read_json(postmortem / FACTS).get("step")
    if type(step) is int:
        return step
    return float("inf")


def freed_bytes(folders: Iterable[Path]) -> int:
    """Returns the number of bytes that the removal of these folders frees, without files that have other links."""
    links: Counter[int] = Counter()
    stats = {}
    for folder in folders:
        for path in folder.rglob("*"):
            info = path.lstat()
            if stat.S_ISREG(info.st_mode):
                links[info.st_ino] += 1
                stats[info.st_ino] = info
    return sum(info.st_size for inode, info in stats.items() if links[inode] == info.st_nlink)


def clean(path: Path) -> int:
    """Removes the folders that `removable` lists, and returns the number of bytes that were freed.

    Raises ConfigError if a process uses the run or if it holds a link, and SnapshotError if the latest snapshot is
    damaged, because the run would then resume from an older one. Nothing is removed in these cases.
    """
    run = RunDir.open(path)
    store = Store(path)
    try:
        folders = removable(path)
        freed = freed_bytes(folders)
        if folders:
            try:
                store.load(store.latest())
            except SnapshotError as error:
                raise SnapshotError(*[f"{path}: {fault}; nothing was removed" for fault in error.faults]) from None
        for folder in folders:
            atomic.remove(folder)
        return freed
    finally:
        run.release()
