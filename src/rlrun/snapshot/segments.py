"""Rows of a ring buffer as immutable files, so that the cost of a snapshot grows with its new rows only.

Rows have absolute numbers, 0 for the first ever appended. Blocks start at multiples of `segment_rows`. Only the oldest
and the newest block of the rows still alive can be partial: those are written anew each time, with exactly the rows
that are alive; all others are written once and then linked. A file holds field after field in order of their names.
"""

import contextlib
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol

import pydantic
import torch
from torch import Tensor

from rlrun.config.schema import config
from rlrun.snapshot.atomic import Written, check_space, write_new
from rlrun.snapshot.tensors import DTYPES, dtype_name, raw

SEGMENT_ROWS = 8192  # at most; fewer where that would exceed
SEGMENT_BYTES = 4 << 20
WAITING = 2  # segments of a ring copied and not yet written, at most: the extra memory of sealing


# bounded, so that products of untrusted numbers are computed at once
Count = Annotated[int, pydantic.Field(ge=0, lt=2**62)]
Size = Annotated[int, pydantic.Field(ge=1, lt=2**62)]
Shape = Annotated[list[Count], pydantic.Field(max_length=64)]


class Ring(Protocol):
    """A buffer whose rows never change between being appended and being overwritten."""

    total: int  # rows ever appended
    capacity: int

    def read(self, lo: int, hi: int) -> dict[str, Tensor]:
        """A copy on CPU of rows lo..hi, absolute numbers; lo == hi gives the fields' types and shapes."""
        ...

    def write(self, lo: int, rows: dict[str, Tensor]) -> None:
        """Restore rows at their absolute numbers. `total` is restored by them, or earlier by the state."""
        ...


class Block(NamedTuple):
    """The rows lo..hi of a ring that lie in one segment."""

    number: int  # of the segment: rows start at number * segment_rows
    lo: int
    hi: int


class Segment(NamedTuple):
    """A full block on disk."""

    path: Path
    written: Written


@config
class Field:
    """A column of a ring."""

    dtype: str
    shape: Shape  # of one row

    def bytes(self) -> int:
        """Of one row. ValueError for an unknown dtype."""
        if self.dtype not in DTYPES:
            raise ValueError(f"unknown dtype {self.dtype!r}")
        return DTYPES[self.dtype].itemsize * math.prod(self.shape)


@config
class Table:
    """The size and columns of a ring, and how it is cut into segments."""

    total: Count
    capacity: Size
    segment_rows: Size
    fields: dict[str, Field]

    @property
    def row_bytes(self) -> int:
        return sum(field.bytes() for field in self.fields.values())

    @property
    def oldest(self) -> int:
        return max(0, self.total - self.capacity)

    @property
    def num_blocks(self) -> int:
        first = self.oldest // self.segment_rows
        end = (self.total + self.segment_rows - 1) // self.segment_rows  # rounded up
        return end - first

    def blocks(self) -> Iterator[Block]:
        """The blocks of all rows that are alive, oldest first."""
        first = self.oldest // self.segment_rows
        for index in range(first, first + self.num_blocks):
            lo, hi = index * self.segment_rows, (index + 1) * self.segment_rows
            yield Block(index, max(lo, self.oldest), min(hi, self.total))

    def full(self, block: Block) -> bool:
        """Whether all rows of a segment are alive."""
        return block.hi - block.lo == self.segment_rows


def describe(ring: Ring) -> Table:
    """The table of a ring as it is now."""
    rows = ring.read(ring.total, ring.total)
    fields = {name: Field(dtype=dtype_name(column), shape=list(column.shape[1:])) for name, column in rows.items()}
    fit = max(1, SEGMENT_BYTES // max(1, sum(field.bytes() for field in fields.values())))
    segment_rows = min(SEGMENT_ROWS, 1 << (fit.bit_length() - 1))
    return Table(total=ring.total, capacity=ring.capacity, segment_rows=segment_rows, fields=fields)


def filename(number: int) -> str:
    """The name of a segment's file."""
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
    data = torch.empty(0, dtype=torch.uint8)
    if len(content):  # frombuffer refuses an empty buffer
        data = torch.frombuffer(content, dtype=torch.uint8)
    for name in sorted(table.fields):
        field = table.fields[name]
        end = start + count * field.bytes()
        # the clone is aligned for its type, which a slice need not be
        rows[name] = data[start:end].clone().view(DTYPES[field.dtype]).reshape(count, *field.shape)
        start = end
    return rows


class SegmentLog:
    """Which full blocks of one ring are on disk, or being written.

    Rows are copied on the caller's thread; `submit` runs everything that touches the disk, in order, on another. New
    segments go to `folder` until a snapshot takes them over.
    """

    def __init__(self, folder: Path, submit: Callable[..., "Future[Any]"]):
        self.folder, self.submit = folder, submit
        self.table: Table | None = None
        self.segments: dict[int, Future[Segment]] = {}
        self.waiting: deque[Future[Segment]] = deque()
        self.due = 0  # rows with which the next block is full

    def idle(self, ring: Ring) -> bool:
        """Whether `seal` would have nothing to do. Cheap enough for every tick."""
        if self.table is None or ring.total < self.table.total:
            return False
        return ring.total < self.due or (len(self.waiting) == WAITING and not self.waiting[0].done())

    def seal(self, ring: Ring, all_of_it: bool = False) -> Table:
        """Copy the blocks that have filled since the last call, for the writer; forget those no longer alive.

        Where the disk is too slow, blocks stay in the ring until the next call. With `all_of_it` this call waits for
        the disk, and writes again the blocks whose file failed or is gone.
        """
        before, table = self.table, describe(ring)
        grown = (  # else the content is another: the ring was emptied or made anew
            before is not None
            and (before.fields, before.segment_rows) == (table.fields, table.segment_rows)
            and before.total <= table.total
        )
        full = {block.number: block for block in table.blocks() if table.full(block)}
        for number, segment in list(self.segments.items()):
            if not (grown and number in full) or (all_of_it and _lost(segment)):
                del self.segments[number]
                self.submit(self.discard, [number])  # in order, after writes and snapshots that use it
        self.table, self.due = table, (table.total // table.segment_rows + 1) * table.segment_rows
        for number, block in full.items():
            if number not in self.segments:
                if not self._room(all_of_it):
                    self.due = block.hi
                    break
                content = pack(ring.read(block.lo, block.hi), table, block)
                self.segments[number] = self.submit(self._write, number, content)
                self.waiting.append(self.segments[number])
        return table

    def discard(self, numbers: Iterable[int]) -> None:
        """Remove the files of these segments from `folder`."""
        for number in numbers:
            with contextlib.suppress(OSError):  # swept at the next start
                (self.folder / filename(number)).unlink(missing_ok=True)

    def moved(self, folder: Path, segments: Mapping[int, "Future[Segment]"]) -> None:
        """From now on these segments are linked from a snapshot's folder."""
        for number, segment in segments.items():
            if self.segments.get(number) is segment:
                path, written = segment.result()
                self.segments[number] = _ready(Segment(folder / path.name, written))

    def restored(self, table: Table, segments: Mapping[int, Segment]) -> None:
        """The ring was just filled from these segments."""
        self.table, self.due = table, 0
        self.segments = {number: _ready(segment) for number, segment in segments.items()}

    def _room(self, wait: bool) -> bool:
        while self.waiting and (self.waiting[0].done() or (wait and len(self.waiting) == WAITING)):
            self.waiting.popleft().exception()  # waits; whether it failed is for the snapshot that needs it
        return len(self.waiting) < WAITING

    def _write(self, number: int, content: list[memoryview]) -> Segment:
        path = self.folder / filename(number)
        self.folder.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # never write into a file that a snapshot may share
        check_space(self.folder, sum(map(len, content)))
        try:
            return Segment(path, write_new(path, content))
        except BaseException:
            self.discard([number])  # it is incomplete
            raise


def _ready(segment: Segment) -> "Future[Segment]":
    future: Future[Segment] = Future()
    future.set_result(segment)
    return future


def _lost(segment: "Future[Segment]") -> bool:
    return segment.done() and (segment.exception() is not None or not segment.result().path.exists())
