"""Damaged files: flipped bits, truncations, and forgeries."""

import json
import random
import signal
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

import malformed
import test_snapshot_malformed as malformed_test
from stores import own, quick_folder

from rlrun.errors import SnapshotError
from rlrun.snapshot import segments
from rlrun.snapshot.store import Store
from rows import Options, Tally, some
from rows.points import TINY
from rows.processes import Child
from rows.runs import SEGMENT_ROWS

FLIPS, CUTS = 10_000, 1_000


class Target:
    """The newest snapshot of a real run, with a separate inode for every file, and LATEST."""

    def __init__(self, run: Path):
        self.run, self.store = run, Store(run)
        names = [name for name in self.store.names() if name != "best"]
        self.newest, self.earlier = names[:2]
        folder = run / "snapshots" / self.newest
        self.files = sorted(path for path in folder.rglob("*") if path.is_file())
        for path in self.files:
            own(path)
        self.sizes = [path.stat().st_size for path in self.files]

    def draw(self, rng: random.Random) -> Path:
        """Draws a file with the weight size + mean size: large files more often, but every file sometimes."""
        weights = [size + sum(self.sizes) / len(self.sizes) for size in self.sizes]
        return rng.choices(self.files, weights)[0]

    def fault(self, path: Path) -> str:
        """Returns what is wrong with the reaction to damage of this file; empty if it is found, named and skipped."""
        part = path.relative_to(self.run / "snapshots" / self.newest).as_posix()
        try:
            snapshot = self.store.load()
        except SnapshotError as error:
            return f"nothing was left: {error}"
        if snapshot.name != self.earlier:
            return f"{snapshot.name} was used"
        named = len(snapshot.faults) == 1 and snapshot.faults[0].startswith(f"{self.newest}: {part}: ")
        return "" if named else f"not named, but {snapshot.faults}"


def flips_and_cuts(options: Options) -> Tally:
    tally, rng, per_file = Tally(), options.random("bits"), Counter[str]()
    flips = min(FLIPS, options.count or FLIPS)
    cuts = min(CUTS, flips // 2)
    segments.SEGMENT_ROWS = SEGMENT_ROWS
    with quick_folder() as folder, chdir(folder):
        run = folder / "run"
        child = Child(["train", *TINY["sac"], f"run_dir={run}"], folder / "log")
        if child.finish() != 0:
            raise RuntimeError(child.said())
        target = Target(run)
        for change, count in ((flip, flips), (cut, cuts)):
            for _ in range(count):
                path = target.draw(rng)
                per_file[path.suffix] += 1
                damage(target, path, change, rng, tally)
        pointer = pointers(target, rng, tally, options)
        shared = shared_segment(target, tally)
    spread = ", ".join(f"{count:,} {suffix}" for suffix, count in per_file.most_common())
    files = f"{len(target.files)} files, {sum(target.sizes) / 1024:.0f} KiB"
    tally.note = f"{flips:,} flips, {cuts:,} cuts over {files} ({spread}); {pointer}; {shared}"
    return tally


def damage(target: Target, path: Path, change: Any, rng: random.Random, tally: Tally) -> None:
    """Damages a file, checks which snapshot a resume would use, and restores the file."""
    content = path.read_bytes()
    what, damaged = change(content, rng)
    path.write_bytes(damaged)
    tally.cases += 1
    if fault := target.fault(path):
        tally.failures.append(f"{path.name}, {what}: {fault}")
    path.write_bytes(content)


def flip(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    bit, damaged = rng.randrange(8 * len(content)), bytearray(content)
    damaged[bit // 8] ^= 1 << bit % 8
    return f"bit {bit}", bytes(damaged)


def cut(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    size = rng.randrange(len(content))
    return f"cut to {size} bytes", content[:size]


def pointers(target: Target, rng: random.Random, tally: Tally, options: Options) -> str:
    """Tries every flipped bit and every length of LATEST: a whole snapshot is used, with a message if another one."""
    path = target.run / "snapshots" / "LATEST"
    content = path.read_bytes()
    changes = [(f"bit {bit}", flipped(content, bit)) for bit in range(8 * len(content))]
    changes += [(f"cut to {size} bytes", content[:size]) for size in range(len(content))]
    older = 0
    for what, damaged in changes:
        path.write_bytes(damaged)
        tally.cases += 1
        snapshot = target.store.load()
        silent = not snapshot.faults and snapshot.name != target.newest
        older += silent and snapshot.name == target.earlier  # the damaged file names this snapshot correctly
        if silent and snapshot.name != target.earlier:
            tally.failures.append(f"LATEST, {what}: {snapshot.name} was used")
    path.write_bytes(content)
    return f"all {len(changes)} of LATEST, {older} of which name the snapshot before"


def flipped(content: bytes, bit: int) -> bytes:
    damaged = bytearray(content)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def shared_segment(target: Target, tally: Tally) -> str:
    """Damage to a file that snapshots share must be reported for each of them, and none may be used."""
    folder, names = target.run / "snapshots", [name for name in target.store.names() if name != target.newest]
    path = next(path for path in (folder / target.earlier).rglob("segment_*") if path.stat().st_nlink > 1)
    content, part = path.read_bytes(), path.relative_to(folder / target.earlier)
    holders = [name for name in names if (folder / name / part).exists() and (folder / name / part).samefile(path)]
    tally.expect(len(holders) > 1, f"{part} is not shared")
    path.write_bytes(flipped(content, 77))
    for name in holders:
        tally.cases += 1
        try:
            target.store.load(name)
            tally.failures.append(f"{name} was used with a damaged shared segment")
        except SnapshotError as error:
            tally.expect(f": {part.as_posix()}: hash differs" in str(error), f"not named: {error}")
    path.write_bytes(content)
    return f"a shared segment is refused by all {len(holders)} that hold it"


def in_time(read: Callable[[Path], str]) -> Callable[[Path], str]:
    """Limits the time of a case, because a pipe in the place of a file must not block the table."""

    def read_in_time(run: Path) -> str:
        signal.setitimer(signal.ITIMER_REAL, 3 * malformed_test.SECONDS)
        try:
            return read(run)
        except TimeoutError:
            return ""
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    return read_in_time


def too_late(number: int, frame: object) -> None:
    raise TimeoutError


def of_malformed(options: Options) -> Tally:
    """Loads hundreds of malformed snapshots in a process in which no code may run."""
    chosen = some(options.count, list(malformed.cases(options.seed)), options.random("malformed"))
    malformed.cases = lambda seed=0: iter(chosen)
    signal.signal(signal.SIGALRM, too_late)
    malformed_test.read = in_time(malformed_test.read)
    with tempfile.TemporaryDirectory() as folder:
        report = f"{folder}/report.json"
        malformed_test.child(report)
        found: dict[str, Any] = json.loads(Path(report).read_text())
    untouched, *judged, control = found["results"]
    tally = verdicts(judged)
    tally.expect(not untouched["line"] and not untouched["findings"], f"a good one: {untouched}")
    seen = {finding.split()[0] for finding in control["findings"]}
    tally.expect(seen >= {"exec", "pickle.find_class", "socket.__new__", "subprocess.Popen", "open"}, "a blind hook")
    tally.expect(found["memory"] < malformed_test.MEMORY, f"{found['memory']:.0f} MiB")
    slowest = max(one["seconds"] for one in judged)
    tally.note = f"{len({one['name'].split('-')[0] for one in judged})} classes; slowest {slowest:.1f} s; "
    tally.note += f"{found['memory']:.0f} MiB; no code run"
    return tally


def verdicts(judged: list[dict[str, Any]]) -> Tally:
    """Checks that each gives one printable line in time, and does nothing that reading does not need."""
    tally = Tally(len(judged))
    for one in judged:
        line = one["line"]
        good = line.isprintable() and line.startswith(f"{malformed_test.LATEST}: ") and len(line) < 300
        tally.expect(line and good, f"{one['name']}: {line[:200] or 'was used'}")
        tally.expect(not one["findings"], f"{one['name']}: {one['findings'][:3]}")
        tally.expect(one["seconds"] < malformed_test.SECONDS, f"{one['name']}: {one['seconds']:.1f} s")
    return tally
