"""Memory that overwrites its oldest rows, addressed by absolute row."""

import pytest
import torch

from rlrun.buffers.ring import RingBuffer

CPU = torch.device("cpu")


def filled(capacity: int, rows: int) -> RingBuffer:
    """Returns a ring in which row i holds i in every field."""
    ring = RingBuffer(capacity, {"x": ((2,), torch.float32), "n": ((), torch.int64)}, CPU)
    for i in range(rows):
        place = ring.append()
        ring.memory["x"][place], ring.memory["n"][place] = i, i
    return ring


@pytest.mark.parametrize(("rows", "first"), [(0, 0), (3, 0), (5, 0), (6, 1), (13, 8)])
def test_ring_keeps_the_newest_rows(rows: int, first: int) -> None:
    ring = filled(5, rows)
    assert (ring.total, ring.first) == (rows, first)
    assert ring.read(first, rows)["n"].tolist() == list(range(first, rows))


def test_ring_reads_and_writes_across_the_end_of_its_memory() -> None:
    ring = filled(5, 13)
    rows = ring.read(8, 13)
    assert rows["x"].tolist() == [[i, i] for i in range(8, 13)]
    copy = RingBuffer(5, {"x": ((2,), torch.float32), "n": ((), torch.int64)}, CPU)
    copy.load_state_dict(ring.state_dict())
    assert not copy.memory["n"].any(), "rows are no part of the state dict"
    copy.write(8, rows)
    assert all(torch.equal(copy.memory[name], ring.memory[name]) for name in ring.memory)
    copy.append()
    assert copy.first == 9


def test_ring_read_returns_a_copy() -> None:
    ring = filled(3, 3)
    rows = ring.read(0, 3)
    ring.memory["n"][ring.append()] = 99
    assert rows["n"].tolist() == [0, 1, 2]
