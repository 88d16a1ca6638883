"""Snapshots are written in a background thread: whole, one at a time, with reported faults and bounded memory."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stores import MemoryRing, digest, equal, grown, restored, save, state

from rlrun.errors import SnapshotError
from rlrun.snapshot import atomic, segments
from rlrun.snapshot.store import STAGING, Store, step_name

ROWS = 16  # in a segment


class SlowDisk:
    """A disk whose syncs wait until the test releases them, and record the calling thread."""

    def __init__(self) -> None:
        self.gate, self.waiting = threading.Event(), threading.Event()
        self.threads: set[str] = set()

    def sync(self, descriptor: int) -> None:
        self.threads.add(threading.current_thread().name)
        self.waiting.set()
        assert self.gate.wait(20)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowDisk]:
    monkeypatch.setattr(segments, "SEGMENT_ROWS", ROWS)
    slow = SlowDisk()
    monkeypatch.setattr(atomic, "sync", slow.sync)
    yield slow
    slow.gate.set()


def begin(store: Store, step: int, ring: MemoryRing, names: Any = None, **given: Any) -> None:
    store.save(names or step_name(step), state(step), {"replay": ring}, {"step": step}, {}, **given)


def drain(store: Store) -> None:
    """Waits until the writer has finished all its work."""
    store._writer.submit(int).result()


def count_reads(ring: MemoryRing) -> list[int]:
    """Returns a list that records the number of rows of every following read."""
    rows: list[int] = []
    real = ring.read

    def read(lo: int, hi: int) -> dict[str, Any]:
        if hi > lo:
            rows.append(hi - lo)
        return real(lo, hi)

    ring.read = read  # type: ignore[method-assign]
    return rows


def broken(*args: Any) -> Any:
    raise OSError(5, "Input/output error", "x")


def test_training_goes_on_while_a_snapshot_is_written_and_changes_nothing_in_it(tmp_path: Path, disk: SlowDisk) -> None:
    store, ring = Store(tmp_path, keep=2), grown(90)
    disk.gate.set()
    save(store, 1, ring)
    disk.gate.clear()
    disk.waiting.clear()
    values, header = state(7), {"step": 7, "list": [1]}
    store.save(step_name(7), values, {"replay": ring}, header, {"wall_s": 1.0})
    assert disk.waiting.wait(20) and store.names() == [step_name(1)]
    values["agent.actor.weight"] += 1
    values["loop._extra_state"]["sum"] += 1
    header["list"].append(2)
    ring.extend(150)  # all rows of the snapshot are gone
    disk.gate.set()
    store.wait()
    snapshot = Store(tmp_path).load()
    assert snapshot.state["agent.actor.weight"].equal(state(7)["agent.actor.weight"])
    assert snapshot.state["loop._extra_state"]["sum"] == 7 and snapshot.header["list"] == [1]
    assert equal(restored(snapshot), grown(90))
    assert disk.threads == {"snapshots_0"}, "the training thread waits for no disk"


def test_equal_states_have_equal_digests_however_they_were_written(tmp_path: Path, disk: SlowDisk) -> None:
    disk.gate.set()
    digests = set()
    for run, period in enumerate([1, 7, 16, 150]):
        (tmp_path / str(run)).mkdir()
        store, ring = Store(tmp_path / str(run), keep=2), MemoryRing(100)
        for total in range(period, 151, period):
            ring.extend(total - ring.total)
            store.seal({"replay": ring})
        ring.extend(150 - ring.total)
        digests.add(digest(save(store, 5, ring)))
    assert len(digests) == 1


def test_a_second_snapshot_waits_for_the_first(tmp_path: Path, disk: SlowDisk) -> None:
    store, ring = Store(tmp_path, keep=2), grown(2 * ROWS)
    begin(store, 1, ring)
    second = threading.Thread(target=begin, args=(store, 2, ring))
    second.start()
    assert disk.waiting.wait(20)
    second.join(0.05)
    assert second.is_alive() and not store.names()
    disk.gate.set()
    second.join(20)
    store.wait()
    assert store.names() == [step_name(2), step_name(1)]


def test_latest_moves_when_all_else_is_on_disk_and_rows_of_the_log_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    real = os.replace

    def rename(source: Path, target: Path) -> None:
        order.append(Path(target).name)
        real(source, target)

    monkeypatch.setattr(os, "replace", rename)
    store = Store(tmp_path, keep=2)
    begin(store, 1, grown(40), ["best", step_name(1)], first=lambda: order.append("log"))
    store.close()
    assert order == ["log", "best", step_name(1), "LATEST"]


def test_snapshot_saved_under_two_names_is_copied_once(tmp_path: Path) -> None:
    store, ring = Store(tmp_path, keep=2), grown(40)
    rows = count_reads(ring)
    begin(store, 1, ring, ["best", step_name(1)])
    store.close()
    assert sum(rows) == 40
    snapshots = [Store(tmp_path).load(name) for name in ("best", step_name(1))]
    assert snapshots[0].digest == snapshots[1].digest
    assert all(equal(restored(snapshot), ring) for snapshot in snapshots)


def test_snapshot_write_error_is_raised_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, ring = Store(tmp_path, keep=2), grown(40)
    save(store, 1, ring)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", broken)
        begin(store, 2, ring)
        with pytest.raises(SnapshotError, match=r"^step_000000002: cannot be written: Input/output error \(x\)$"):
            begin(store, 3, ring)
    store.wait()
    assert store.names() == [step_name(1)], "a call that reports the previous fault saves nothing"
    ring.extend(30)
    save(store, 4, ring)
    assert equal(restored(Store(tmp_path).load()), ring)


def test_store_seal_raises_a_finished_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, ring = Store(tmp_path, keep=2), grown(40)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", broken)
        begin(store, 2, ring)
        drain(store)
    with pytest.raises(SnapshotError, match=r"^step_000000002: cannot be written"):
        store.seal({"replay": ring})
    store.seal({"replay": ring})


def test_a_snapshot_that_is_written_is_not_lost_where_older_ones_cannot_go(
    tmp_path: Path, disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.gate.set()
    store, ring = Store(tmp_path, keep=1), grown(40)
    save(store, 1, ring)
    with monkeypatch.context() as patch:
        patch.setattr(atomic, "remove", broken)
        begin(store, 2, ring)
        with pytest.raises(SnapshotError, match=r"^step_000000002: .*"):
            store.wait()
    assert Store(tmp_path).load().name == step_name(1), "the folder of a name is cleared before it is written"
    save(store, 3, ring)
    with monkeypatch.context() as patch:
        patch.setattr(Store, "_retain", broken)
        begin(store, 4, ring)
        with pytest.raises(SnapshotError, match=r"^step_000000004: is written, but older snapshots cannot be removed"):
            store.wait()
    assert Store(tmp_path).load().name == step_name(4)
    rows = count_reads(ring)
    save(store, 5, ring)
    assert rows == [8], "its segments are those to go on with"


def test_snapshot_checks_disk_space_before_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, ring, real = Store(tmp_path, keep=2), grown(40), os.statvfs
    save(store, 1, ring)
    before = sorted(path.name for path in store.folder.iterdir())

    def crowded(folder: Path) -> os.statvfs_result:
        room = list(real(folder))
        room[4] = atomic.RESERVE // room[1]  # free blocks: the reserve and no more
        return os.statvfs_result(room)

    with monkeypatch.context() as patch:
        patch.setattr(os, "statvfs", crowded)
        begin(store, 2, ring)
        with pytest.raises(SnapshotError, match=r"0\.0 MiB are needed and 16 kept for logs, 16\.0 are free \(/.*\)$"):
            store.wait()
    assert sorted(path.name for path in store.folder.iterdir()) == before


def test_a_folder_that_cannot_be_written_is_told_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "mkdir", broken)
    with pytest.raises(SnapshotError, match=r"^/.*/snapshots: cannot be written: Input/output error \(x\)$"):
        Store(tmp_path, keep=2)


def test_store_close_waits_and_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path, keep=2)
    begin(store, 1, grown(40))
    store.close()
    assert Store(tmp_path).load().name == step_name(1)
    store = Store(tmp_path, keep=2)
    monkeypatch.setattr(os, "write", broken)
    begin(store, 2, grown(40))
    with pytest.raises(SnapshotError, match="step_000000002: cannot be written"):
        store.close()
    store.close()


def test_snapshot_programming_errors_are_not_snapshot_errors(tmp_path: Path) -> None:
    def first() -> None:
        raise ZeroDivisionError

    store = Store(tmp_path, keep=2)
    begin(store, 1, grown(40), first=first)
    with pytest.raises(ZeroDivisionError):
        store.wait()


# --- sealing ---------------------------------------------------------------------------------------------------------


def files(store: Store) -> list[str]:
    return sorted(path.name for path in (store.folder / STAGING).rglob("*.bin"))


def test_segments_are_written_as_they_fill(tmp_path: Path, disk: SlowDisk) -> None:
    disk.gate.set()
    store, ring = Store(tmp_path, keep=2), MemoryRing(100)
    rows = count_reads(ring)
    for _ in range(16 * 5 + 3):
        ring.extend(1)
        store.seal({"replay": ring})
        drain(store)
    assert files(store) == [segments.filename(number) for number in range(5)]
    assert rows == [ROWS] * 5
    rows.clear()
    begin(store, 1, ring)
    assert rows == [3], "a snapshot copies the open segment only"
    store.wait()
    assert files(store) == []
    assert equal(restored(Store(tmp_path).load()), ring)
    ring.extend(70)
    rows.clear()
    store.seal({"replay": ring})
    begin(store, 2, ring)
    assert sum(rows) < 70 + 2 * ROWS
    store.close()
    assert equal(restored(Store(tmp_path).load()), ring)


def test_segments_overwritten_before_any_snapshot_are_deleted(tmp_path: Path, disk: SlowDisk) -> None:
    disk.gate.set()
    store, ring = Store(tmp_path, keep=2), MemoryRing(40)
    for _ in range(200):
        ring.extend(1)
        store.seal({"replay": ring})
    drain(store)
    assert len(files(store)) <= 3
    save(store, 1, ring)
    assert equal(restored(Store(tmp_path).load(), 40), ring)


def test_a_slow_disk_costs_no_time_and_little_memory(tmp_path: Path, disk: SlowDisk) -> None:
    store, ring = Store(tmp_path, keep=2), MemoryRing(1000)
    rows = count_reads(ring)
    for _ in range(10 * ROWS):
        ring.extend(1)
        store.seal({"replay": ring})
    assert rows == [ROWS] * segments.WAITING, "no more is copied than the disk takes"
    saving = threading.Thread(target=begin, args=(store, 1, ring))
    saving.start()
    saving.join(0.05)
    assert saving.is_alive() and len(rows) == segments.WAITING, "a snapshot of the rest waits for the disk"
    disk.gate.set()
    saving.join(20)
    store.close()
    assert rows == [ROWS] * 10
    assert equal(restored(Store(tmp_path).load(), 1000), ring)


def test_many_rows_at_once_are_copied_as_the_disk_takes_them(tmp_path: Path, disk: SlowDisk) -> None:
    store, ring = Store(tmp_path, keep=2), grown(5 * ROWS + 3)
    rows = count_reads(ring)
    store.seal({"replay": ring})
    store.seal({"replay": ring})
    assert rows == [ROWS] * segments.WAITING
    disk.gate.set()
    for _ in range(3):
        drain(store)
        store.seal({"replay": ring})
    assert rows == [ROWS] * 5


def test_a_disk_without_room_for_a_segment_gets_no_part_of_it(
    tmp_path: Path, disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.gate.set()
    store, ring = Store(tmp_path, keep=2), grown(2 * ROWS)
    written: list[Path] = []
    monkeypatch.setattr(segments, "write_new", lambda path, chunks: written.append(path))
    monkeypatch.setattr(atomic, "RESERVE", 1 << 60)
    store.seal({"replay": ring})
    drain(store)
    assert not written


def test_snapshot_overwrites_a_leftover_segment_file(tmp_path: Path, disk: SlowDisk) -> None:
    disk.gate.set()
    store, ring = Store(tmp_path, keep=2), grown(2 * ROWS)
    stale = store.folder / STAGING / "replay" / segments.filename(1)
    stale.parent.mkdir(parents=True)
    stale.write_bytes(b"stale")
    save(store, 1, ring)
    assert equal(restored(Store(tmp_path).load()), ring)


def test_store_seal_is_idle_without_new_rows(tmp_path: Path, disk: SlowDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    disk.gate.set()
    store, ring = Store(tmp_path, keep=2), grown(20)
    store.seal({"replay": ring})
    monkeypatch.setattr(segments, "describe", broken)
    for _ in range(11):
        ring.extend(1)
        store.seal({"replay": ring})
    ring.extend(1)
    with pytest.raises(OSError):
        store.seal({"replay": ring})


def test_a_segment_that_could_not_be_written_is_written_again(
    tmp_path: Path, disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.gate.set()
    store, ring = Store(tmp_path, keep=2), grown(40)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", broken)
        store.seal({"replay": ring})
        drain(store)
        assert files(store) == [], "no part of it is left"
    ring.extend(10)
    save(store, 1, ring)
    assert equal(restored(Store(tmp_path).load()), ring)


def test_a_snapshot_whose_segment_fails_behind_it_is_not_written(
    tmp_path: Path, disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, ring = Store(tmp_path, keep=2), grown(20)
    monkeypatch.setattr(os, "link", broken)
    store.seal({"replay": ring})
    begin(store, 1, ring)
    with monkeypatch.context() as patch:
        patch.setattr(atomic, "write_new", broken)
        patch.setattr(segments, "write_new", broken)
        disk.gate.set()
        with pytest.raises(SnapshotError, match="cannot be written: Input/output error"):
            store.wait()
    assert store.names() == []
    save(store, 2, ring)
    assert equal(restored(Store(tmp_path).load()), ring)


def test_snapshot_of_an_emptied_ring_shares_no_segments(tmp_path: Path, disk: SlowDisk) -> None:
    disk.gate.set()
    store, ring = Store(tmp_path, keep=2), grown(40)
    store.seal({"replay": ring})
    other = MemoryRing(100)
    store.seal({"replay": other})
    other.extend(60)
    other.data["obs"] += 1
    save(store, 1, other)
    assert equal(restored(Store(tmp_path).load()), other)


def test_a_ring_emptied_behind_a_snapshot_shares_nothing_with_it(tmp_path: Path, disk: SlowDisk) -> None:
    store, ring = Store(tmp_path, keep=2), grown(2 * ROWS)
    begin(store, 1, ring)
    other = MemoryRing(100)
    store.seal({"replay": other})
    other.extend(2 * ROWS)
    other.data["obs"] += 1
    disk.gate.set()
    store.seal({"replay": other})
    drain(store)
    store.wait()
    save(store, 2, other)
    assert equal(restored(Store(tmp_path).load(step_name(1))), ring)
    assert equal(restored(Store(tmp_path).load(step_name(2))), other)


def test_a_resumed_run_goes_on_with_the_segments_of_its_snapshot(tmp_path: Path, disk: SlowDisk) -> None:
    disk.gate.set()
    store = Store(tmp_path, keep=2)
    save(store, 1, grown(90))
    store.close()
    store = Store(tmp_path, keep=2)
    ring = restored(store.load())
    rows = count_reads(ring)
    ring.extend(8)
    store.seal({"replay": ring})
    assert rows == [ROWS], "90 to 96 was partial"
    save(store, 2, ring)
    assert equal(restored(Store(tmp_path).load()), ring)
