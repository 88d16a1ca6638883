"""A snapshot whose files have all been verified byte for byte. The rows of its ring buffers are read later."""

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
    """A verified snapshot. `restore_ring` reads the rows of a ring buffer."""

    name: str
    path: Path
    header: dict[str, Any]
    clocks: dict[str, Any]  # times, which differ between equal runs and are not in the digest
    digest: str
    format: int  # version of the file format in which it was written
    state: dict[str, Any]  # with the names of this version, and with tensors on the CPU
    faults: list[str]  # one line for each invalid snapshot that was tried before this one
    _rings: dict[str, Table] = field(repr=False)
    _files: dict[str, manifest.File] = field(repr=False)
    _logs: dict[str, SegmentLog] = field(repr=False)

    @property
    def step(self) -> int:
        """The run's step when the snapshot was saved. Raises SnapshotError if an untrusted header has no valid step."""
        step = self.header.get("step")
        if type(step) is not int or not 0 <= step <= LAST_STEP:
            raise SnapshotError(f"{self.name}: {manifest.MANIFEST}: header.step: not a number of steps")
        return step

    def restore_ring(self, name: str, ring: Ring) -> None:
        """Restores all rows of a ring.

        Raises SnapshotError if the snapshot lacks the ring, if its capacity or columns differ from those of `ring`, or
        if a file has been damaged since the verification.
        """
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
            self._logs[name].reuse(table, segments)

    def _check_fit(self, name: str, saved: Table, live: Table) -> None:
        if saved.capacity != live.capacity:
            raise SnapshotError(
                f"{self.name}: {name}: capacity is {saved.capacity}, but {live.capacity} in this run's config"
            )
        for column in sorted({*saved.fields, *live.fields}):
            there, here = saved.fields.get(column), live.fields.get(column)
            if there != here:
                line = f"is {there or 'missing'} in the snapshot, but {here or 'missing'} in this run"
                raise SnapshotError(f"{self.name}: {name}/{column}: {line}")
