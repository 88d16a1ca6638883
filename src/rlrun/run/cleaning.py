"""Removes what a run does not need to resume: old snapshots, leftovers of killed processes, an outdated post-mortem."""

import stat
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from rlrun.errors import RlrunError, SnapshotError
from rlrun.run.postmortem import FACTS, FOLDER
from rlrun.rundir import RunDir, read_json
from rlrun.snapshot import atomic
from rlrun.snapshot.store import BEST, Store, step_of


def removable(run: Path) -> list[Path]:
    """Returns the folders and files that a run does not need.

    These are leftovers of killed processes in snapshots/ whose removal frees bytes, and if the latest snapshot exists,
    all snapshots other than the latest and the best, and an outdated post-mortem.
    """
    store = Store(run)
    leftovers = [path for path in atomic.leftovers(store.folder) if freed_bytes([path])]
    return [*_outdated(run, store), *leftovers]


def _outdated(run: Path, store: Store) -> list[Path]:
    """Returns the unneeded snapshots, and the post-mortem if it is outdated; [] if the latest snapshot is missing."""
    names = store.names()
    latest = store.latest()
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


def freed_bytes(places: Iterable[Path]) -> int:
    """Returns the number of bytes that the removal of these folders and files frees.

    A file that has links elsewhere frees nothing.
    """
    links: Counter[int] = Counter()
    stats = {}
    for place in places:
        for path in (place, *place.rglob("*")):
            info = path.lstat()
            if stat.S_ISREG(info.st_mode):
                links[info.st_ino] += 1
                stats[info.st_ino] = info
    return sum(info.st_size for inode, info in stats.items() if links[inode] == info.st_nlink)


def clean(path: Path) -> int:
    """Removes what `removable` lists, and returns the number of bytes that were freed.

    Raises ConfigError if a process uses the run or if its folder holds a link, and SnapshotError if the latest snapshot
    is damaged, because the run would then resume from an older one. No snapshot is removed in these cases. Raises
    RlrunError with the name of a file that cannot be removed.
    """
    try:
        run = RunDir.open(path)
        try:
            return _clean(path)
        finally:
            run.release()
    except OSError as error:
        raise RlrunError(f"{error.filename or path}: cannot be removed ({error.strerror})") from error


def _clean(path: Path) -> int:
    before = freed_bytes([path])
    store = Store(path)
    atomic.remove_leftovers(store.folder)
    folders = _outdated(path, store)
    if folders:
        try:
            store.load(store.latest())
        except SnapshotError as error:
            raise SnapshotError(*[f"{path}: {fault}; nothing was removed" for fault in error.faults]) from None
    for folder in folders:
        atomic.remove(folder)
    for folder in (path, store.folder):
        atomic.remove_leftovers(folder)  # raises OSError if a folder was not removed completely
    return before - freed_bytes([path])
