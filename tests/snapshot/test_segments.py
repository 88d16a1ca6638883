import pytest
import torch
from stores import MemoryRing

from rlrun.snapshot import segments
from rlrun.snapshot.segments import Field, Table, describe, pack, unpack


def table(total: int, capacity: int, segment_rows: int = 8) -> Table:
    return Table(total=total, capacity=capacity, segment_rows=segment_rows, fields={})


@pytest.mark.parametrize("capacity", [1, 5, 8, 16, 19, 64])
def test_segment_blocks_are_rows_alive_cut_at_multiples(capacity):
    for total in range(60):
        blocks = list(table(total, capacity).blocks())
        rows = [row for _, lo, hi in blocks for row in range(lo, hi)]
        assert rows == list(range(max(0, total - capacity), total))
        assert all(hi > lo and lo // 8 == (hi - 1) // 8 == number for number, lo, hi in blocks)
        assert table(total, capacity).num_blocks == len(blocks)


def test_segments_of_a_huge_ring_are_counted_not_listed():
    assert table(10**18, 10**18).num_blocks == 10**18 // 8


def test_segments_have_bounded_bytes():
    assert describe(MemoryRing(10)).segment_rows == segments.SEGMENT_ROWS
    wide = describe(MemoryRing(2, width=1 << 16))
    assert wide.segment_rows & (wide.segment_rows - 1) == 0
    assert segments.SEGMENT_BYTES // 4 < wide.segment_rows * wide.row_bytes <= segments.SEGMENT_BYTES


def test_segment_pack_and_unpack_round_trip():
    ring = MemoryRing(10)
    ring.extend(13)
    cut = describe(ring)
    (block,) = cut.blocks()
    content = bytearray(b"".join(pack(ring.alive(), cut, block)))
    rows = unpack(content, cut, block)
    assert all(torch.equal(rows[name], column) for name, column in ring.alive().items())
    with pytest.raises(ValueError, match="size differs"):
        unpack(content[:-1], cut, block)


def test_rows_of_another_shape_are_refused():
    ring = MemoryRing(10)
    ring.extend(3)
    cut = describe(ring)
    (block,) = cut.blocks()
    for wrong in ({"obs": torch.zeros(3, 4)}, {"obs": torch.zeros(3, 3).double()}, {"obs": torch.zeros(2, 3)}):
        with pytest.raises(ValueError, match="ring field obs"):
            pack({**ring.alive(), **wrong}, cut, block)


def test_unknown_dtypes_are_refused():
    with pytest.raises(ValueError, match="unknown dtype 'object'"):
        Field(dtype="object", shape=[]).bytes()
