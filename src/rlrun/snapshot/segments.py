"""Rows of a ring buffer as immutable files, so that a snapshot's cost follows the new rows and not the buffer's size.

Rows have absolute numbers, 0 for the first ever appended. Blocks start at multiples of `segment_rows`. Only the oldest
and the newest block of the rows still alive can be partial: those are written anew each time, with exactly the rows
that are alive; all others are written once and then linked. A file holds field after field in order of their names.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from rlrun.config.schema import NonNegativeInt, PositiveInt, config
from rlrun.snapshot.atomic import Written, write_new
from rlrun.snapshot.tensors import DTYPES, dtype_name, raw

SEGMENT_ROWS = 8192  # at most; fewer where that would exceed
SEGMENT_BYTES = 4 << 20


class Ring(Protocol):
    """A buffer whose rows never change between being appended and being overwritten."""

    total: int  # rows ever appended
    capacity: int

    def read(self, lo: int, hi: int) -> dict[str, Tensor]:
        """A copy on CPU of rows lo..hi, absolute numbers; lo == hi gives the fields' types and shapes."""
        ...

    def write(self, lo: int, rows: dict[str, Tensor]) -> None:
        """Put rows back at their absolute numbers. `total` comes back with them, or earlier with the state."""
        ...


class Block(NamedTuple):
    number: int  # of the segment: rows start at number * segment_rows
    lo: int
    hi: int


class Segment(NamedTuple):
    """A full block on disk."""

    path: Path
    written: Written


@config
class Field:
    dtype: str
    shape: list[NonNegativeInt]  # of one row

    def bytes(self) -> int:
        """Of one row. ValueError for an unknown dtype."""
        if self.dtype not in DTYPES:
            raise ValueError(f"unknown dtype {self.dtype!r}")
        return DTYPES[self.dtype].itemsize * math.prod(self.shape)


@config
class Table:
    """What a ring holds, and how it is cut."""

    total: NonNegativeInt
    capacity: PositiveInt
    segment_rows: PositiveInt
    fields: dict[str, Field]

    @property
    def row_bytes(self) -> int:
        return sum(field.bytes() for field in self.fields.values())

    @property
    def oldest(self) -> int:
        return max(0, self.total - self.capacity)

    @property
    def num_blocks(self) -> int:
        return -(-self.total // self.segment_rows) - self.oldest // self.segment_rows if self.total else 0

    def blocks(self) -> Iterator[Block]:
        """All rows alive, oldest first."""
        first = self.oldest // self.segment_rows
        for index in range(first, first + self.num_blocks):
            lo, hi = index * self.segment_rows, (index + 1) * self.segment_rows
            yield Block(index, max(lo, self.oldest), min(hi, self.total))

    def full(self, block: Block) -> bool:
        return block.hi - block.lo == self.segment_rows


def describe(ring: Ring) -> Table:
    rows = ring.read(ring.total, ring.total)
    fields = {name: Field(dtype=dtype_name(column), shape=list(column.shape[1:])) for name, column in rows.items()}
    fit = max(1, SEGMENT_BYTES // max(1, sum(field.bytes() for field in fields.values())))
    segment_rows = min(SEGMENT_ROWS, 1 << (fit.bit_length() - 1))
    return Table(total=ring.total, capacity=ring.capacity, segment_rows=segment_rows, fields=fields)


def filename(number: int) -> str:
    return f"segment_{number:06d}.bin"


def pack(rows: Mapping[str, Tensor], table: Table, block: Block) -> list[memoryview]:
    """The buffers of one block, in the order in which they lie in its file."""
    for name, field in table.fields.items():
        shape, expected = tuple(rows[name].shape), (block.hi - block.lo, *field.shape)
        if shape != expected or dtype_name(rows[name]) != field.dtype:
            raise ValueError(f"ring field {name}: {rows[name].dtype} {shape} where {field.dtype} {expected} was due")
    return [raw(rows[name]) for name in sorted(table.fields)]


def unpack(content: Any, table: Table, block: Block) -> dict[str, Tensor]:
    """Rows from a block's bytes (a writable buffer). ValueError where the size is wrong."""
    count, start, rows = block.hi - block.lo, 0, {}
    if len(content) != count * table.row_bytes:
        raise ValueError("size differs")
    data = torch.frombuffer(content, dtype=torch.uint8) if len(content) else torch.empty(0, dtype=torch.uint8)
    for name in sorted(table.fields):
        field = table.fields[name]
        end = start + count * field.bytes()
        # the clone is aligned for its type, which a slice need not be
        rows[name] = data[start:end].clone().view(DTYPES[field.dtype]).reshape(count, *field.shape)
        start = end
    return rows


class SegmentLog:
    """Which full blocks of one ring lie on disk. New ones go to `folder` until a snapshot takes them over."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.table: Table | None = None
        self.segments: dict[int, Segment] = {}

    def seal(self, ring: Ring) -> Table:
        """Write the blocks that have filled since the last call; forget those that are no longer alive."""
        before, table = self.table, describe(ring)
        grown = (  # else another content: a ring that was emptied or made anew
            before is not None
            and (before.fields, before.segment_rows) == (table.fields, table.segment_rows)
            and before.total <= table.total
        )
        self.table = table
        full = {block.number: block for block in table.blocks() if table.full(block)}
        for number, segment in list(self.segments.items()):
            if not (grown and number in full and segment.path.exists()):
                self._forget(number)
        for number, block in full.items():
            if number not in self.segments:
                self._write(block, ring, table)
        return table

    def moved(self, folder: Path) -> None:
        """A snapshot has linked every segment into its own folder: those are the files to link from now on."""
        for number, (path, written) in list(self.segments.items()):
            self.segments[number] = Segment(folder / path.name, written)
            if path.parent == self.folder:
                path.unlink(missing_ok=True)

    def restored(self, table: Table, segments: dict[int, Segment]) -> None:
        """The ring was just filled from these files."""
        self.table, self.segments = table, segments

    def _write(self, block: Block, ring: Ring, table: Table) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / filename(block.number)
        path.unlink(missing_ok=True)  # never write into a file that a snapshot may share
        self.segments[block.number] = Segment(path, write_new(path, pack(ring.read(block.lo, block.hi), table, block)))

    def _forget(self, number: int) -> None:
        path = self.segments.pop(number).path
        if path.parent == self.folder:
            path.unlink(missing_ok=True)
