"""Saves, loads and removes the snapshots of one run.

Saving has two halves. `_copy` makes a consistent copy of all state on the caller's thread. `_write` writes this copy on
the store's only writer thread, after the segments that were submitted before, while training continues.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from rlrun import files
from rlrun.errors import ConfigError, SnapshotError
from rlrun.formats import history
from rlrun.snapshot import atomic, manifest, tensors, tree
from rlrun.snapshot.folder import Copy, RingCopy, link_folder, write_folder
from rlrun.snapshot.loaded import Snapshot
from rlrun.snapshot.segments import Ring, Segment, SegmentLog, pack

LATEST, BEST = "LATEST", "best"
STEP = re.compile(r"step_([0-9]{9,18})")
LATEST_BYTES = 100
STAGING = atomic.TEMPORARY + "segments"  # folder of full segments that belong to no snapshot yet


def step_name(step: int) -> str:
    """Returns the name of the snapshot of a step, `step_000010000`."""
    return f"step_{step:09d}"


class _UnderWay(NamedTuple):
    name: str  # the snapshot whose folder later snapshots will link the segments from
    segments: dict[str, dict[int, "Future[Segment]"]]
    written: "Future[SnapshotError | None]"


class _Held(NamedTuple):
    name: str
    copy: Copy
    first: Callable[[], object] | None


class Store:
    """The folder RUN/snapshots. With `keep` > 0 the caller must be the run's only writer; with 0 the store only reads.

    The store keeps the latest `keep` snapshots and `best`. With `archive_every` it also keeps the first snapshot at or
    after every multiple of so many steps.
    """

    def __init__(self, run: Path, keep: int = 0, archive_every: int | Fraction = 0):
        self.folder = Path(run) / "snapshots"
        self.keep, self.archive_every = keep, archive_every
        self._logs: dict[str, SegmentLog] = {}
        self._writer = ThreadPoolExecutor(1, "snapshots")  # starts its thread with the first job
        self._under_way: _UnderWay | None = None
        self._held: _Held | None = None
        if keep:
            try:
                files.make_folder(self.folder)
                atomic.remove_leftovers(self.folder)
            except OSError as error:
                raise _fault(f"{self.folder}: cannot be written", error) from error
            if (self.folder / LATEST).is_dir():
                raise SnapshotError(f"{self.folder / LATEST}: is a folder; it must name the latest snapshot")

    def names(self) -> list[str]:
        """Returns the names of all finished snapshots, newest first, `best` last."""
        if not self.folder.is_dir():
            return []
        found = [path.name for path in self.folder.iterdir() if path.is_dir()]
        names = sorted(filter(STEP.fullmatch, found), key=step_of, reverse=True)
        if BEST in found:
            names.append(BEST)
        return names

    def save(
        self,
        names: str | Iterable[str],
        state: Mapping[str, Any],
        rings: Mapping[str, Ring],
        header: Mapping[str, object],
        clocks: Mapping[str, object],
        first: Callable[[], object] | None = None,
    ) -> None:
        """Copies all state now, and writes the copy in the background under one or more names.

        A name `step_...` updates LATEST and removes snapshots that are no longer kept; `best` does neither. An older
        snapshot of the same name is replaced. header, clocks: JSON values. first: called on the writer thread before
        anything is written, for files that must be on disk earlier.

        Waits for the previous write, and raises what `wait` raises if that failed; nothing is saved then. Raises
        TypeError or ValueError for state that cannot be stored.
        """
        if isinstance(names, str):
            names = [names]
        names = tuple(names)
        if not (self.keep and names and all(STEP.fullmatch(name) or name == BEST for name in names)):
            raise ValueError(f"cannot save {names} in a store that keeps {self.keep}")
        self.wait()
        self._held = None  # it is older
        self._submit(self._copy(state, rings, header, clocks), names, first)

    def _submit(self, copy: Copy, names: tuple[str, ...], first: Callable[[], object] | None) -> None:
        segments = {name: ring.segments for name, ring in copy.rings.items()}
        self._under_way = _UnderWay(names[-1], segments, self._writer.submit(self._write, copy, names, first))

    def hold(
        self,
        name: str,
        state: Mapping[str, object],
        rings: Mapping[str, Ring],
        header: Mapping[str, object],
        clocks: Mapping[str, object],
        first: Callable[[], object] | None = None,
    ) -> None:
        """Copies all state now, as `save` does, and keeps the copy in memory in place of the one before."""
        assert self._under_way is None
        self._held = _Held(name, self._copy(state, rings, header, clocks), first)

    def may_hold(self, is_due: bool) -> bool:
        """Returns whether `hold` should be called: when it is due, or if no copy is kept any more.

        Never while a snapshot is being written, because its segments have no place yet.
        """
        return self._under_way is None and (is_due or self._held is None)

    @property
    def held(self) -> str | None:
        """The name of the copy that `hold` keeps, or None if there is none."""
        return None if self._held is None else self._held.name

    def save_held(self) -> None:
        """Writes the copy that `hold` keeps, in the background. There must be one."""
        assert self._held is not None
        held, self._held = self._held, None
        self._submit(held.copy, (held.name,), held.first)

    def seal(self, rings: Mapping[str, Ring]) -> None:
        """Writes segments that have become full, so that the next snapshot need not. Cheap enough for every tick.

        If the previous write has ended, raises what `wait` raises.
        """
        if self._under_way and self._under_way.written.done():
            self.wait()
        for name, ring in rings.items():
            log = self._logs.get(name) or self._log(name)
            if not log.idle(ring):
                log.seal(ring)
                if self._held and not self._held.copy.rings[name].segments.keys() <= log.segments.keys():
                    self._held = None  # the files of overwritten rows are removed

    def wait(self) -> None:
        """Waits until the last snapshot is on disk. Raises SnapshotError, once, if it could not be written.

        Earlier snapshots stay valid in that case.
        """
        if self._under_way is None:
            return
        last, self._under_way = self._under_way, None
        fault = last.written.result()
        for name, segments in last.segments.items():
            self._logs[name].moved(self.folder / last.name / name, segments)
        if fault:
            raise fault

    def mark_best(self, name: str) -> None:
        """Links the snapshot of this name as `best`, once it is on disk.

        Raises what `wait` raises, and SnapshotError if the link cannot be made; the earlier `best` then stays.
        """
        self.wait()
        try:
            link_folder(self.folder / name, self.folder / BEST)
        except OSError as error:
            raise _fault(f"{BEST}: cannot be linked to {name}", error) from error

    def close(self) -> None:
        """Waits for the last snapshot and ends the writer thread. Raises what `wait` raises."""
        try:
            self.wait()
        finally:
            self._writer.shutdown()

    def preferred(self) -> str | None:
        """Returns `best` if there is such a snapshot, else None, with which `load` returns the latest."""
        if BEST in self.names():
            return BEST
        return None

    def load(self, name: str | None = None) -> Snapshot:
        """Returns the snapshot of that name. Without a name: the one in LATEST, else the newest valid one, else `best`.

        Raises SnapshotError with one line for each snapshot that was tried and found invalid.
        """
        self.wait()
        faults: list[str] = []
        kind = SnapshotError
        if name is None:
            candidates = self._candidates(faults)
        else:
            candidates = [name]
        for candidate in candidates:
            try:
                snapshot = self._read(candidate)
            except SnapshotError as error:
                faults.append(str(error))
                kind = type(error)
            else:
                snapshot.faults = faults
                return snapshot
        raise kind(*faults or [f"{self.folder}: no snapshot"])

    def _candidates(self, faults: list[str]) -> list[str]:
        names, latest = self.names(), self.latest()
        if latest:
            return [latest, *(name for name in names if name != latest)]
        if any(map(STEP.fullmatch, names)):  # LATEST is written with the first of these
            faults.append(f"{LATEST}: names no snapshot")
        return names

    def latest(self) -> str | None:
        """Returns the name in the file LATEST, or None if there is none. The snapshot may be missing."""
        try:
            name = files.read(self.folder / LATEST, LATEST_BYTES).decode().strip()
        except (OSError, ValueError, ConfigError):
            return None
        if not STEP.fullmatch(name):
            return None
        return name

    def _read(self, name: str) -> Snapshot:
        if not (STEP.fullmatch(name) or name == BEST):
            raise SnapshotError(f"{name!r}: not the name of a snapshot")
        path = self.folder / name
        verified, contents = manifest.verify(path)
        try:
            arrays = {}
            for part in (manifest.AGENT, manifest.REST):
                arrays.update(tensors.load(contents[part]))
            part = manifest.SKELETON
            skeleton = manifest.read_json(contents[part])
            state = tree.decode(skeleton, arrays)
            part = manifest.MANIFEST
            manifest.check_hash(manifest.digest(skeleton, arrays, verified.ring_hashes()), verified.digest)
            state = history.renamed_state(state, verified.format, str(verified.header.get("algo")))
        except Exception as error:  # the content of an untrusted file may be invalid even if its hashes are correct
            raise SnapshotError(f"{name}: {part}: cannot be read ({manifest.line(error)})") from None
        logs = {ring: self._log(ring) for ring in verified.rings}
        return Snapshot(
            name,
            path,
            verified.header,
            verified.clocks,
            verified.digest,
            verified.format,
            state,
            [],
            verified.rings,
            verified.files,
            logs,
        )

    def _log(self, ring: str) -> SegmentLog:
        if not manifest.RING_NAME.fullmatch(ring):
            raise ValueError(f"bad ring name {ring!r}")
        return self._logs.setdefault(ring, SegmentLog(self.folder / STAGING / ring, self._writer.submit))

    # --- on the caller's thread ---------------------------------------------------------------------------------------

    def _copy(self, state: Any, rings: Mapping[str, Ring], header: Any, clocks: Any) -> Copy:
        skeleton, arrays = tree.encode(state)
        text = json.dumps(skeleton).encode()
        manifest.check_nodes(text)
        if len(text) > manifest.STATE_LIMIT:
            raise ValueError(f"the state without its arrays has more than {manifest.STATE_LIMIT} bytes")
        copies = {}
        for name, ring in rings.items():
            log = self._log(name)
            table = log.seal(ring, all_of_it=True)
            partial = [block for block in table.blocks() if not table.full(block)]
            rows = {block: pack(ring.read(block.lo, block.hi), table, block) for block in partial}
            copies[name] = RingCopy(table, dict(log.segments), rows)
        return Copy(_plain(header), _plain(clocks), text, arrays, copies)

    # --- on the writer's thread ---------------------------------------------------------------------------------------

    def _write(self, copy: Copy, names: tuple[str, ...], first: Callable[[], object] | None) -> SnapshotError | None:
        """Raises SnapshotError if the write failed; returns one if only the removal of older snapshots failed."""
        name = names[-1]
        try:
            if first:
                first()
            files.make_folder(self.folder)  # it may have been deleted
            atomic.check_space(self.folder, copy.size * len(names))
            for name in names:
                write_folder(copy, self.folder / name)
            for name in names:
                if name != BEST:
                    atomic.replace_text(self.folder / LATEST, name + "\n")
        except OSError as error:
            raise _fault(f"{name}: cannot be written", error) from error
        for ring, part in copy.rings.items():
            self._logs[ring].discard(part.segments)
        try:
            self._retain([name for name in names if name != BEST])
        except OSError as error:
            return _fault(f"{name}: is written, but older snapshots cannot be removed", error)
        return None

    def _retain(self, written: list[str]) -> None:
        """Removes snapshots that are not kept. Those of later steps go too, because the run was resumed before them."""
        for newest in written:
            steps = [name for name in self.names() if name != BEST]
            past = [name for name in steps if step_of(name) <= step_of(newest)]
            for name in {*steps} - {*past[: self.keep], *self._archive(past)}:
                atomic.remove(self.folder / name)

    def _archive(self, steps: list[str]) -> list[str]:
        """Returns the first snapshots at or after every multiple of `archive_every`. steps: names, newest first."""
        if not self.archive_every:
            return []
        # of the names with one multiple, the earliest step comes last and replaces the others
        first = {step_of(name) // self.archive_every: name for name in steps}
        return [name for multiple, name in first.items() if multiple > 0]


def _plain(values: Any) -> Any:
    """Returns a copy of JSON values. Raises TypeError or ValueError for other values."""
    return json.loads(json.dumps(values, allow_nan=False))


def step_of(name: str) -> int:
    """Returns the step of a snapshot's name."""
    return int(name.removeprefix("step_"))


def _fault(what: str, error: OSError) -> SnapshotError:
    line = f"{what}: {error.strerror or error}"
    if error.filename:
        line += f" ({error.filename})"
    return SnapshotError(line)
