"""After a power cut at any call, on a disk that keeps only what was synced, the last snapshot is there."""

from pathlib import Path

import pytest
from power_cut import Disk
from stores import equal, grown, quick_folder, restored, state, three

from rlrun.snapshot import segments
from rlrun.snapshot.store import Store, step_name


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT_ROWS", 16)


def record(run: Path) -> tuple[Disk, list[tuple[int, int]]]:
    """Writes two more snapshots after step 2. Returns the numbers of calls from which each step is guaranteed."""
    store = Store(run, keep=2)
    ring, promised = restored(store.load()), [(0, 2)]
    with Disk(run / "snapshots") as disk:
        for step in (3, 4):
            for _ in range(3):
                ring.extend(15)
                store.seal({"replay": ring})
            names = ["best", step_name(step)] if step == 3 else step_name(step)
            store.save(names, state(step), {"replay": ring}, {"step": step}, {})
            store.wait()
            promised.append((len(disk.calls), step))
        store.close()
    return disk, promised


def wrong(run: Path, promised: int) -> list[str]:
    """Returns what the next process, which may clean up, finds wrong."""
    try:
        store = Store(run, keep=2)
        snapshot = store.load()
        step, faults = snapshot.header["step"], snapshot.faults
        if step < promised:
            faults.append(f"step {promised} was promised, {step} is there")
        if not equal(restored(snapshot), grown({2: 50, 3: 95, 4: 140}[step])):
            faults.append(f"{snapshot.name}: other rows")
        store.load("best")
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]
    return faults


def lost() -> list[str]:
    """Cuts the power after every call of two snapshots. Returns all faults."""
    faults, known = [], set()
    with quick_folder() as folder:
        (folder / "run").mkdir()
        disk, promises = record(three(folder / "run"))
        assert len(disk.calls) > 100
        for count in range(len(disk.calls) + 1):
            promised = max(step for since, step in promises if since <= count)
            for tree in disk.after(count):
                state_of_disk = (promised, *sorted(tree.items()))
                if state_of_disk not in known:
                    known.add(state_of_disk)
                    run = folder / str(len(known))
                    (run / "snapshots").mkdir(parents=True)
                    disk.lay_out(tree, run / "snapshots")
                    faults += [f"cut after call {count}: {fault}" for fault in wrong(run, promised)]
    return faults


def test_power_cut_loses_no_snapshot() -> None:
    assert not lost()
