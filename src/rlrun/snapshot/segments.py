"""Stores the rows of a ring buffer in immutable files, so that a snapshot only needs to write new rows.

Rows are numbered from 0, for the first row ever appended. They are divided into blocks that start at multiples of
`segment_rows`. A row is alive until it is overwritten. Only the oldest and the newest block can be partial; every
snapshot writes these again, with exactly the rows that are alive. A full block is written once, as a segment, and then
linked into every snapshot. A file holds one column after the other, in the order of their names.
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

from rlrun.settings import config
from rlrun.snapshot.atomic import Written, check_space, write_new
from rlrun.snapshot.tensors import DTYPES, dtype_name, raw

SEGMENT_ROWS = 8192  # the most rows of a segment; fewer if these would have more than SEGMENT_BYTES
SEGMENT_BYTES = 4 << 20
WAITING = 2  # the most segments of a ring that are copied but not written yet; limits the memory for copies


# bounded, because these numbers may be untrusted and products of huge integers take long
Count = Annotated[int, pydantic.Field(ge=0, lt=2**62)]
Size = Annotated[int, pydantic.Field(ge=1, lt=2**62)]
Shape = Annotated[list[Count], pydantic.Field(max_length=64)]


class Ring(Protocol):
    """A buffer whose rows never change between being appended and being overwritten."""

    total: int  # rows ever appended
    capacity: int

    def read(self, lo: int, hi: int) -> dict[str, Tensor]:
        """Returns column name -> copy of the rows lo to hi - 1 on the CPU; for lo == hi the columns have no rows."""
        ...

    def write(self, lo: int, rows: dict[str, Tensor]) -> None:
        """Restores rows from number `lo` on. `total` is restored by this method, or before it with the state."""
        ...


class Block(NamedTuple):
    """The rows lo to hi - 1 of a ring, which lie in one segment."""

    number: int  # number of the segment, which starts at row number * segment_rows
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
        """Returns the size of this column in one row, in bytes. Raises ValueError for an unknown dtype."""
        if self.dtype not in DTYPES:
            raise ValueError(f"unknown dtype {self.dtype!r}")
        return DTYPES[self.dtype].itemsize * math.prod(self.shape)


@config
class Table:
    """The size and columns of a ring, and how it is divided into segments."""

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
        """Yields the blocks of all rows that are alive, oldest first."""
        first = self.oldest // self.segment_rows
        for index in range(first, first + self.num_blocks):
            lo, hi = index * self.segment_rows, (index + 1) * self.segment_rows
            yield Block(index, max(lo, self.oldest), min(hi, self.total))

    def full(self, block: Block) -> bool:
        """Returns whether all rows of a block's segment are alive."""
        return block.hi - block.lo == self.segment_rows


def describe(ring: Ring) -> Table:
    """Returns the table of a ring with its current total."""
    rows = ring.read(ring.total, ring.total)
    fields = {name: Field(dtype=dtype_name(column), shape=list(column.shape[1:])) for name, column in rows.items()}
    fit = max(1, SEGMENT_BYTES // max(1, sum(field.bytes() for field in fields.values())))
    segment_rows = min(SEGMENT_ROWS, 1 << (fit.bit_length() - 1))
    return Table(total=ring.total, capacity=ring.capacity, segment_rows=segment_rows, fields=fields)


def filename(number: int) -> str:
    """Returns the name of a segment's file, such as `segment_000012.bin`."""
    return f"segment_{number:06d}.bin"


def pack(rows: Mapping[str, Tensor], table: Table, block: Block) -> list[memoryview]:
    """Returns the bytes of one block, one buffer per column in the order of the file.

    Raises ValueError if the rows do not match the table.
    """
    for name, field in table.fields.items():
        shape, expected = tuple(rows[name].shape), (block.hi - block.lo, *field.shape)
        if shape != expected or dtype_name(rows[name]) != field.dtype:
            raise ValueError(f"ring field {name}: is {rows[name].dtype} {shape}, must be {field.dtype} {expected}")
    return [raw(rows[name]) for name in sorted(table.fields)]


def unpack(content: Any, table: Table, block: Block) -> dict[str, Tensor]:
    """Returns the rows of a block from its bytes, a writable buffer. Raises ValueError if their number is wrong."""
    count, start, rows = block.hi - block.lo, 0, {}
    if len(content) != count * table.row_bytes:
        raise ValueError("size differs")
    data = torch.empty(0, dtype=torch.uint8)
    if len(content):  # frombuffer does not accept an empty buffer
        data = torch.frombuffer(content, dtype=torch.uint8)
    for name in sorted(table.fields):
        field = table.fields[name]
        end = start + count * field.bytes()
        # a slice may not be aligned for its dtype, its clone is
        rows[name] = data[start:end].clone().view(DTYPES[field.dtype]).reshape(count, *field.shape)
        start = end
    return rows


class SegmentLog:
    """The full blocks of one ring that are on disk or being written.

    Rows are copied on the caller's thread. Everything that writes to the disk is passed to `submit`, which runs it in
    order on the writer thread. New segments are written to `folder`; a snapshot then links them into its own folder.
    """

    def __init__(self, folder: Path, submit: Callable[..., "Future[Any]"]):
        self.folder, self.submit = folder, submit
        self.table: Table | None = None
        self.segments: dict[int, Future[Segment]] = {}
        self.waiting: deque[Future[Segment]] = deque()
        self.due = 0  # the ring's total at which `seal` has something to do again

    def idle(self, ring: Ring) -> bool:
        """Returns whether `seal` would have nothing to do. Cheap enough for every tick."""
        if self.table is None or ring.total < self.table.total:
            return False
        return ring.total < self.due or (len(self.waiting) == WAITING and not self.waiting[0].done())

    def seal(self, ring: Ring, all_of_it: bool = False) -> Table:
        """Copies the blocks that have become full since the last call, and submits them to the writer.

        Segments with overwritten rows are removed. If the disk is too slow, blocks stay in the ring until the next
        call. With `all_of_it`, this call waits for the disk instead, and blocks whose file failed or is missing are
        written again. Returns the current table of the ring.
        """
        before, table = self.table, describe(ring)
        grown = (  # False if the ring was emptied or replaced, so that stored segments do not belong to it
            before is not None
            and (before.fields, before.segment_rows) == (table.fields, table.segment_rows)
            and before.total <= table.total
        )
        full = {block.number: block for block in table.blocks() if table.full(block)}
        for number, segment in list(self.segments.items()):
            if not (grown and number in full) or (all_of_it and _lost(segment)):
                del self.segments[number]
                self.submit(self.discard, [number])  # runs after the submitted writes that use this segment
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
        """Removes the files of these segments from `folder`."""
        for number in numbers:
            with contextlib.suppress(OSError):  # what remains is deleted at the next start
                (self.folder / filename(number)).unlink(missing_ok=True)

    def moved(self, folder: Path, segments: Mapping[int, "Future[Segment]"]) -> None:
        """Sets the paths of segments to a snapshot's folder, from which later snapshots link them."""
        for number, segment in segments.items():
            if self.segments.get(number) is segment:
                path, written = segment.result()
                self.segments[number] = _ready(Segment(folder / path.name, written))

    def reuse(self, table: Table, segments: Mapping[int, Segment]) -> None:
        """Makes the next snapshots link these segments, from which the ring was restored, and not write them again."""
        self.table, self.due = table, 0
        self.segments = {number: _ready(segment) for number, segment in segments.items()}

    def _room(self, wait: bool) -> bool:
        while self.waiting and (self.waiting[0].done() or (wait and len(self.waiting) == WAITING)):
            self.waiting.popleft().exception()  # waits; a failure is raised when a snapshot needs this segment
        return len(self.waiting) < WAITING

    def _write(self, number: int, content: list[memoryview]) -> Segment:
        path = self.folder / filename(number)
        self.folder.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # never write into a file that a snapshot may share
        check_space(self.folder, sum(map(len, content)))
        try:
            return Segment(path, write_new(path, content))
        except BaseException:
            self.discard([number])  # the file is incomplete
            raise


def _ready(segment: Segment) -> "Future[Segment]":
    future: Future[Segment] = Future()
    future.set_result(segment)
    return future


def _lost(segment: "Future[Segment]") -> bool:
    return segment.done() and (segment.exception() is not None or not segment.result().path.exists())
