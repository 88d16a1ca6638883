"""A snapshot that has been read and verified byte for byte."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlrun import files
from rlrun.errors import ConfigError, SnapshotError
from rlrun.formats.numbers import LAST_STEP
from rlrun.snapshot import atomic, manifest
from rlrun.snapshot.segments import Ring, Segment, SegmentLog, Table, describe, filename, unpack


@dataclass
class Snapshot:
    """A verified snapshot. Rows of ring buffers are read later, by `restore_ring`."""

    name: str
    path: Path
    header: dict[str, Any]
    clocks: dict[str, Any]
    digest: str
    format: int  # version of the file format in which it was written
    state: dict[str, Any]  # as saved, with tensors on the CPU
    faults: list[str] = field(default_factory=list)  # one line for each invalid snapshot that was tried before this one
    _rings: dict[str, Table] = field(default_factory=dict, repr=False)
    _files: dict[str, manifest.File] = field(default_factory=dict, repr=False)
    _logs: dict[str, SegmentLog] = field(default_factory=dict, repr=False)

    @property
    def step(self) -> int:
        """The run's step when the snapshot was saved. Raises SnapshotError if an untrusted header has no valid step."""
        step = self.header.get("step")
        if type(step) is not int or not 0 <= step <= LAST_STEP:
            raise SnapshotError(f"{self.name}: {manifest.MANIFEST}: header.step: not a number of steps")
        return step

    def restore_ring(self, name: str, ring: Ring) -> None:
        """Restores all rows of a ring. Raises SnapshotError if the saved capacity or columns differ from the ring's."""
        table = self._rings.get(name)
        if table is None:
            raise SnapshotError(f"{self.name}: {name}: not in this snapshot")
        self._check_fit(name, table, describe(ring))
        segments = {}
        for block in table.blocks():
            part = f"{name}/{filename(block.number)}"
            known = self._files[part]
            try:
                # the file is hashed again, because it may have changed since the snapshot was verified
                content = bytearray(files.read(self.path / part, known.size))
                manifest.check_hash(hashlib.sha256(content).hexdigest(), known.sha256)
                ring.write(block.lo, unpack(content, table, block))
            except (OSError, ValueError, ConfigError) as error:
                raise SnapshotError(f"{self.name}: {part}: {manifest.line(error)}") from None
            if table.full(block):
                segments[block.number] = Segment(self.path / part, atomic.Written(known.size, known.sha256))
        if ring.total != table.total:
            raise SnapshotError(f"{self.name}: {name}: restored to {ring.total} rows, but {table.total} were saved")
        if name in self._logs:
            self._logs[name].restored(table, segments)

    def _check_fit(self, name: str, saved: Table, live: Table) -> None:
        if saved.capacity != live.capacity:
            raise SnapshotError(
                f"{self.name}: {name}: capacity is {saved.capacity}, but {live.capacity} in this run's config"
            )
        for column in sorted({*saved.fields, *live.fields}):
            if saved.fields.get(column) != live.fields.get(column):
                there, here = saved.fields.get(column), live.fields.get(column)
                raise SnapshotError(f"{self.name}: {name}/{column}: is {there} in the snapshot, but {here} in this run")
