"""The snapshots of one run: saving, loading with fall-back, retention.

Saving has two halves. `_copy` takes a consistent copy of all state, on the caller's thread; `_write` turns it into a
folder and needs nothing from the run any more, so that it may go to another thread.
"""

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from rlrun.errors import SnapshotError
from rlrun.snapshot import atomic, manifest, tree
from rlrun.snapshot.segments import Block, Ring, Segment, SegmentLog, Table, describe, filename, pack, unpack

LATEST, BEST = "LATEST", "best"
STEP = re.compile(r"step_(\d{9,})")
STAGING = atomic.TEMPORARY + "segments"  # full segments between two snapshots


def step_name(step: int) -> str:
    return f"step_{step:09d}"


@dataclass
class Snapshot:
    """A snapshot that was verified byte for byte. `faults` says which newer ones were passed over, and why."""

    name: str
    path: Path
    header: dict[str, Any]
    clocks: dict[str, Any]
    digest: str
    state: dict[str, Any]  # as saved; tensors on CPU, in memory of their own
    faults: list[str] = field(default_factory=list)
    _rings: dict[str, Table] = field(default_factory=dict, repr=False)
    _files: dict[str, manifest.File] = field(default_factory=dict, repr=False)
    _logs: dict[str, SegmentLog] = field(default_factory=dict, repr=False)

    def restore_ring(self, name: str, ring: Ring) -> None:
        """Put all living rows back into an equally shaped ring. SnapshotError where it is not."""
        table = self._rings.get(name)
        if table is None:
            raise SnapshotError(f"{self.name}: {name}: not in this snapshot")
        self._check_fit(name, table, describe(ring))
        segments = {}
        for block in table.blocks():
            part = f"{name}/{filename(block.number)}"
            try:
                ring.write(block.lo, unpack(bytearray((self.path / part).read_bytes()), table, block))
            except (OSError, ValueError) as error:
                raise SnapshotError(f"{self.name}: {part}: {error}") from None
            if table.full(block):
                known = self._files[part]
                segments[block.number] = Segment(self.path / part, atomic.Written(known.size, known.sha256))
        if ring.total != table.total:
            raise SnapshotError(f"{self.name}: {name}: restored to {ring.total} rows, {table.total} were saved")
        if name in self._logs:
            self._logs[name].restored(table, segments)

    def _check_fit(self, name: str, saved: Table, live: Table) -> None:
        if saved.capacity != live.capacity:
            raise SnapshotError(f"{self.name}: {name}: capacity is {saved.capacity}, this run's is {live.capacity}")
        for column in sorted({*saved.fields, *live.fields}):
            if saved.fields.get(column) != live.fields.get(column):
                there, here = saved.fields.get(column), live.fields.get(column)
                raise SnapshotError(f"{self.name}: {name}/{column}: is {there}, this run's is {here}")


@dataclass(frozen=True)
class _RingCopy:
    table: Table
    segments: dict[int, Segment]  # full blocks, by number: on disk already
    partial: dict[Block, dict[str, Tensor]]  # the oldest and the newest block: rows in memory


@dataclass(frozen=True)
class _Copy:
    name: str
    header: dict[str, Any]
    clocks: dict[str, Any]
    skeleton: str
    tensors: dict[str, Tensor]
    rings: dict[str, _RingCopy]


class Store:
    """RUN/snapshots. With `keep` the caller is the run's one writer; without, it only reads and touches nothing."""

    def __init__(self, run: Path, keep: int = 0):
        self.folder = Path(run) / "snapshots"
        self.keep = keep
        self._logs: dict[str, SegmentLog] = {}
        if keep:
            self.folder.mkdir(exist_ok=True)
            atomic.sweep(self.folder)

    def names(self) -> list[str]:
        """Snapshots that were finished, newest first, `best` last."""
        found = [path.name for path in self.folder.iterdir() if path.is_dir()] if self.folder.is_dir() else []
        return sorted(filter(STEP.fullmatch, found), key=_step, reverse=True) + [BEST] * (BEST in found)

    def save(
        self,
        name: str,
        state: Mapping[str, Any],
        rings: Mapping[str, Ring],
        header: dict[str, Any],
        clocks: dict[str, Any],
    ) -> Path:
        """Write a snapshot: `step_...` (moves LATEST, applies retention) or `best`; an older one of that name goes.

        `header` and `clocks` are JSON. Raises SnapshotError when the disk will not have it (all earlier snapshots stay
        good), TypeError for state that cannot be stored.
        """
        if not (self.keep and (STEP.fullmatch(name) or name == BEST)):
            raise ValueError(f"cannot save {name!r} in a store that keeps {self.keep}")
        try:
            return self._write(self._copy(name, state, rings, header, clocks))
        except OSError as error:
            raise SnapshotError(f"{name}: cannot be written: {error.strerror} ({error.filename})") from error

    def load(self, name: str | None = None) -> Snapshot:
        """The snapshot of that name; without one, LATEST, else the newest good `step_...`, else `best`.

        Raises SnapshotError with one line for each snapshot that was tried.
        """
        faults: list[str] = []
        for candidate in [name] if name is not None else self._candidates(faults):
            try:
                snapshot = self._read(candidate)
            except SnapshotError as error:
                faults.append(str(error))
            else:
                snapshot.faults = faults
                return snapshot
        raise SnapshotError("\n".join(faults) or f"{self.folder}: no snapshot")

    def _candidates(self, faults: list[str]) -> list[str]:
        names = self.names()
        try:
            latest = (self.folder / LATEST).read_text(encoding="utf-8").strip()
        except (OSError, ValueError):
            latest = ""
        if latest:
            return [latest, *(name for name in names if name != latest)]
        if names:
            faults.append(f"{LATEST}: names no snapshot")
        return names

    def _read(self, name: str) -> Snapshot:
        if not (STEP.fullmatch(name) or name == BEST):
            raise SnapshotError(f"{name!r}: not the name of a snapshot")
        path = self.folder / name
        facts, contents = manifest.verify(path)
        try:
            tensors = {}
            for part in (manifest.AGENT, manifest.REST):
                tensors.update(safetensors.torch.load(bytes(contents[part])))
            part = manifest.SKELETON
            state = tree.decode(json.loads(contents[part]), tensors)
            header, part = facts.header, manifest.MANIFEST
            for version in range(facts.format, manifest.FORMAT):
                header, state = manifest.MIGRATIONS[version](header, state)
        except Exception as error:  # right hashes prove nothing about content that a stranger wrote
            raise SnapshotError(f"{name}: {part}: cannot be read ({' '.join(str(error).split())[:200]})") from None
        logs = {ring: self._log(ring) for ring in facts.rings}
        return Snapshot(name, path, header, facts.clocks, facts.digest, state, [], facts.rings, facts.files, logs)

    def _log(self, ring: str) -> SegmentLog:
        if not manifest.RING_NAME.fullmatch(ring):
            raise ValueError(f"bad ring name {ring!r}")
        return self._logs.setdefault(ring, SegmentLog(self.folder / STAGING / ring))

    def _copy(self, name: str, state: Any, rings: Mapping[str, Ring], header: Any, clocks: Any) -> _Copy:
        skeleton, tensors = tree.encode(state)
        copies = {}
        for ring_name, ring in rings.items():
            log = self._log(ring_name)
            table = log.seal(ring)
            partial = [block for block in table.blocks() if not table.full(block)]
            rows = {block: ring.read(block.lo, block.hi) for block in partial}
            copies[ring_name] = _RingCopy(table, dict(log.segments), rows)
        return _Copy(name, header, clocks, json.dumps(skeleton), tensors, copies)

    def _write(self, copy: _Copy) -> Path:
        folder, target = self.folder / f"{atomic.TEMPORARY}{copy.name}", self.folder / copy.name
        atomic.remove(folder)
        folder.mkdir()
        try:
            files = self._write_state(copy, folder)
            blocks = {name: self._write_ring(ring, folder / name) for name, ring in copy.rings.items()}
            self._write_manifest(copy, folder, files, blocks)
            atomic.replace_folder(folder, target)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        for name in copy.rings:
            self._log(name).moved(target / name)
        if copy.name != BEST:
            atomic.replace_text(self.folder / LATEST, copy.name + "\n")
            self._retain(copy.name)
        return target

    def _write_state(self, copy: _Copy, folder: Path) -> dict[str, atomic.Written]:
        agent = {place: tensor for place, tensor in copy.tensors.items() if place.startswith("agent.")}
        rest = {place: tensor for place, tensor in copy.tensors.items() if place not in agent}
        contents = {
            manifest.AGENT: safetensors.torch.save(agent),
            manifest.REST: safetensors.torch.save(rest),
            manifest.SKELETON: copy.skeleton.encode(),
        }
        return {name: atomic.write_new(folder / name, [content]) for name, content in contents.items()}

    def _write_ring(self, ring: _RingCopy, folder: Path) -> dict[str, atomic.Written]:
        written = {}
        folder.mkdir()
        for block in ring.table.blocks():
            path = folder / filename(block.number)
            if block in ring.partial:
                written[path.name] = atomic.write_new(path, pack(ring.partial[block], ring.table, block))
            else:
                segment = ring.segments[block.number]
                atomic.link(segment.path, path)
                written[path.name] = segment.written
        atomic.sync_folder(folder)
        return written

    def _write_manifest(self, copy: _Copy, folder: Path, files: dict[str, Any], blocks: dict[str, Any]) -> None:
        tables = {name: ring.table for name, ring in copy.rings.items()}
        hashes = {name: (tables[name], [w.sha256 for w in written.values()]) for name, written in blocks.items()}
        text = manifest.dump(
            name=copy.name,
            digest=manifest.digest(json.loads(copy.skeleton), copy.tensors, hashes),
            header=copy.header,
            clocks=copy.clocks,
            rings=tables,
            files={**files, **{f"{name}/{part}": w for name, parts in blocks.items() for part, w in parts.items()}},
        )
        atomic.write_new(folder / manifest.MANIFEST, [text.encode()])
        atomic.sync_folder(folder)

    def _retain(self, newest: str) -> None:
        """Keep the latest `keep`. Steps beyond the newest are of a future that this run has left."""
        steps = [name for name in self.names() if name != BEST]
        past = [name for name in steps if _step(name) <= _step(newest)]
        for name in {*steps} - {*past[: self.keep]}:
            atomic.remove(self.folder / name)


def _step(name: str) -> int:
    return int(name.removeprefix("step_"))
