import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from stores import (
    MemoryRing,
    digest,
    equal,
    flip,
    forge,
    grown,
    replace_listed,
    restored,
    save,
    state,
    three,
)

from rlrun.errors import SnapshotError
from rlrun.formats import history
from rlrun.snapshot import atomic, manifest, segments, store
from rlrun.snapshot.store import Store, step_name


@pytest.fixture(autouse=True)
def small_segments(monkeypatch):
    monkeypatch.setattr(segments, "SEGMENT_ROWS", 16)


@pytest.mark.parametrize("total", [0, 1, 15, 16, 17, 99, 100, 101, 1000])
def test_snapshot_round_trips_state_and_ring(tmp_path, total):
    ring = grown(total)
    path = save(Store(tmp_path, keep=2), 10, ring, clock=1.5)
    assert (tmp_path / "snapshots/LATEST").read_text() == "step_000000010\n"
    snapshot = Store(tmp_path).load()
    assert (snapshot.name, snapshot.path, snapshot.faults) == ("step_000000010", path, [])
    assert (snapshot.header, snapshot.clocks) == ({"step": 10}, {"wall_s": 1.5})
    assert list(snapshot.state) == list(state())
    assert torch.equal(snapshot.state["agent.actor.weight"], state(10)["agent.actor.weight"])
    assert snapshot.state["loop._extra_state"] == state(10)["loop._extra_state"]
    assert equal(restored(snapshot), ring)


def test_the_agent_is_a_plain_safetensors_file(tmp_path):
    path = save(Store(tmp_path, keep=1), 1, grown(5))
    agent = safetensors.torch.load_file(path / "agent.safetensors")
    assert set(agent) == {"agent.actor.weight", "agent.noise._extra_state"}


def test_a_loaded_ring_is_free_of_the_files(tmp_path):
    snapshot = save(Store(tmp_path, keep=1), 1, grown(40))
    ring = restored(Store(tmp_path).load())
    for part in snapshot.rglob("*.bin"):
        part.write_bytes(bytes(part.stat().st_size))
    assert equal(ring, grown(40))


def test_rows_that_changed_since_they_were_verified_are_refused(run):
    snapshot = Store(run).load()
    flip(snapshot.path / "replay/segment_000001.bin", 100)
    with pytest.raises(SnapshotError, match=r"^step_000000002: replay/segment_000001\.bin: hash differs$"):
        restored(snapshot)
    (snapshot.path / "replay/segment_000000.bin").unlink()
    with pytest.raises(SnapshotError, match=r"^step_000000002: replay/segment_000000\.bin: No such file"):
        restored(snapshot)


def test_a_ring_of_another_shape_is_refused(tmp_path):
    save(Store(tmp_path, keep=1), 1, grown(5))
    snapshot = Store(tmp_path).load()
    with pytest.raises(SnapshotError, match="replay: capacity is 100, but 50 in this run's config"):
        snapshot.restore_ring("replay", MemoryRing(50))
    with pytest.raises(SnapshotError, match="replay/obs"):
        snapshot.restore_ring("replay", MemoryRing(100, width=4))
    wider = MemoryRing(100)
    wider.data["extra"] = torch.zeros(100)
    with pytest.raises(SnapshotError, match="replay/extra: is missing in the snapshot, but Field"):
        snapshot.restore_ring("replay", wider)
    with pytest.raises(SnapshotError, match="rollout: not in this snapshot"):
        snapshot.restore_ring("rollout", MemoryRing(100))


# cost


def bytes_written(monkeypatch, action) -> int:
    sizes = []
    real = atomic.write_new

    def counted(path, chunks):
        written = real(path, chunks)
        sizes.append(written.size if path.suffix == ".bin" else 0)
        return written

    with monkeypatch.context() as patch:
        for module in (atomic, segments):
            patch.setattr(module, "write_new", counted)
        action()
    return sum(sizes)


def test_snapshot_cost_follows_new_rows(tmp_path, monkeypatch):
    ring, target = grown(5000, capacity=4000), Store(tmp_path, keep=2)
    row, segment = segments.describe(ring).row_bytes, segments.SEGMENT_ROWS
    first = bytes_written(monkeypatch, lambda: save(target, 1, ring))
    ring.extend(40)
    second = bytes_written(monkeypatch, lambda: save(target, 2, ring))
    assert first == 4000 * row
    assert second <= (40 + 2 * segment) * row


def inodes(path: Path) -> dict[str, int]:
    return {part.name: part.stat().st_ino for part in (path / "replay").iterdir()}


def test_full_segments_are_shared_between_snapshots_and_after_a_resume(tmp_path):
    ring = grown(200)
    first = inodes(save(Store(tmp_path, keep=3), 1, ring))
    target = Store(tmp_path, keep=3)
    ring = restored(target.load())
    ring.extend(20)
    second = inodes(save(target, 2, ring))
    third = inodes(save(target, 2, ring, name="best"))
    full = {segments.filename(number) for number in range(8, 12)}  # rows 128 to 191; 120 to 127 is partial
    assert {name for name in first if first[name] == second.get(name)} == full
    assert {name: third[name] for name in full} == {name: second[name] for name in full}
    assert equal(restored(Store(tmp_path).load("best")), grown(220))


def test_without_hard_links_segments_are_copied(tmp_path, monkeypatch):
    def refuse(source, target):
        raise PermissionError(1, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    target, ring = Store(tmp_path, keep=2), grown(50)
    save(target, 1, ring)
    ring.extend(20)
    save(target, 2, ring)
    assert equal(restored(Store(tmp_path).load()), ring)


def test_snapshot_writes_deleted_segments_again(tmp_path):
    target, ring = Store(tmp_path, keep=2), grown(50)
    shutil.rmtree(save(target, 1, ring))
    ring.extend(20)
    save(target, 2, ring)
    assert equal(restored(Store(tmp_path).load()), ring)


def test_snapshot_of_an_emptied_ring_shares_no_segments(tmp_path):
    target = Store(tmp_path, keep=2)
    save(target, 1, grown(50))
    other = MemoryRing(100)
    other.extend(20)
    other.data["obs"] += 1
    save(target, 2, other)
    assert equal(restored(Store(tmp_path).load()), other)


def test_reading_a_snapshot_does_not_lend_its_segments_to_another_ring(tmp_path):
    save(Store(tmp_path, keep=2), 1, grown(50))
    target = Store(tmp_path, keep=2)
    target.load()
    other = grown(50)
    other.data["obs"] += 1
    save(target, 2, other)
    assert equal(restored(Store(tmp_path).load()), other)


# digest


@pytest.mark.parametrize("total", [30, 100, 333])
def test_digest_does_not_depend_on_the_history_of_snapshots(tmp_path, total):
    digests = set()
    for run, stops in enumerate([(), (1, 17, 29), range(0, total, total // 5)]):
        (tmp_path / str(run)).mkdir()
        target, ring = Store(tmp_path / str(run), keep=2), MemoryRing(100)
        for stop in stops:
            ring.extend(stop - ring.total)
            save(target, stop, ring)
        ring.extend(total - ring.total)
        digests.add(digest(save(target, total, ring, clock=run)))
        target = Store(tmp_path / str(run), keep=2)
        digests.add(digest(save(target, total, restored(target.load()), name="best")))
    assert len(digests) == 1


def test_digest_changes_with_every_bit_of_state(tmp_path):
    target = Store(tmp_path, keep=9)
    digests = [digest(save(target, 10, grown(150)))]

    def changed(values: dict, ring: MemoryRing) -> None:
        target.save("best", values, {"replay": ring}, {}, {})
        target.wait()
        digests.append(digest(target.folder / "best"))

    for row in (50, 63, 64, 100, 149):  # oldest, partial, full, newest block
        ring = grown(150)
        ring.data["frame"][row % 100, 1, 1] ^= 1
        changed(state(10), ring)
        target = Store(tmp_path, keep=9)
    for name, value in {
        "loop.step": torch.tensor(10).view(torch.uint64),
        "agent.actor.weight": state(10)["agent.actor.weight"].reshape(3, 2),
        "loop._extra_state": {**state(10)["loop._extra_state"], "first": [True, 1]},
        "agent.other": None,
    }.items():
        changed({**state(10), name: value}, grown(150))
    changed(state(10), grown(150, capacity=101))
    changed(state(10), grown(151))
    assert len(set(digests)) == len(digests)


# faults


@pytest.fixture
def run(tmp_path) -> Path:
    return three(tmp_path)


def parts(path: Path) -> list[str]:
    return sorted(part.relative_to(path).as_posix() for part in path.rglob("*") if part.is_file())


def test_snapshot_verification_finds_flipped_bits_and_truncation(run):
    latest, rng = run / "snapshots/step_000000002", np.random.default_rng(0)
    for part in parts(latest):
        path, good = latest / part, (latest / part).read_bytes()
        for bit in rng.integers(8 * len(good), size=12):
            flip(path, int(bit))
            with pytest.raises(SnapshotError, match=rf"^step_000000002: {part}: [^\n]+$"):
                Store(run).load(latest.name)
            path.write_bytes(good)
        for size in rng.integers(len(good), size=3):
            path.write_bytes(good[:size])
            with pytest.raises(SnapshotError, match=rf"^step_000000002: {part}: [^\n]+$"):
                Store(run).load(latest.name)
            path.write_bytes(good)
    assert Store(run).load().faults == []


def test_snapshot_verification_names_a_missing_file(run):
    latest = run / "snapshots/step_000000002"
    for part in parts(latest):
        content = (latest / part).read_bytes()
        (latest / part).unlink()
        with pytest.raises(SnapshotError, match=rf"^step_000000002: {part}: missing$"):
            Store(run).load(latest.name)
        (latest / part).write_bytes(content)


FORGERIES = {
    "newer format": (lambda m: m.update(format=99), "format 99: this version of rlrun reads formats up to"),
    "earlier format": (lambda m: m.update(format=0), f"format 0: .* commit {history.CONVERTS} "),
    "no format": (lambda m: m.pop("format"), f"no format: .* commit {history.CONVERTS} "),
    "format of a wrong type": (lambda m: m.update(format="5"), "format '5': this version of rlrun reads formats up to"),
    "extra key": (lambda m: m.update(code="x"), "code"),
    "missing key": (lambda m: m.pop("rings"), "rings"),
    "other name": (lambda m: m.update(name="best"), "belongs to 'best'"),
    "no ring": (lambda m: m["rings"].clear(), "files do not match rings"),
    "huge ring": (lambda m: m["rings"]["replay"].update(total=10**18, capacity=10**18), "files do not match rings"),
    "no rows a segment": (lambda m: m["rings"]["replay"].update(segment_rows=0), "segment_rows"),
    "unknown dtype": (lambda m: m["rings"]["replay"]["fields"]["obs"].update(dtype="object"), "unknown dtype"),
    "wider rows": (lambda m: m["rings"]["replay"]["fields"]["obs"].update(shape=[4]), "files do not match"),
    "huge segments": (lambda m: m["rings"]["replay"]["fields"]["obs"].update(shape=[10**12]), "segments .* too large"),
    "absurd rows": (lambda m: m["rings"]["replay"]["fields"]["obs"].update(shape=[10**30]), "less than"),
    "other digest": (lambda m: m.update(digest="0" * 64), "hash differs"),
    "path outside": (lambda m: m["rings"].update({"../x": m["rings"].pop("replay")}), "bad ring name '../x'"),
    "absolute path": (lambda m: m["files"].update({"/etc/passwd": m["files"].pop("state.json")}), "state.json"),
}


@pytest.mark.parametrize("change, fault", FORGERIES.values(), ids=FORGERIES)
def test_a_forged_manifest_gives_one_line(run, change, fault):
    forge(run / "snapshots/step_000000002", change)
    with pytest.raises(SnapshotError, match=rf"^step_000000002: manifest.json: [^\n]*{fault}[^\n]*$"):
        Store(run).load("step_000000002")


@pytest.mark.parametrize(
    "part, content",
    [
        ("state.json", b"["),
        ("state.json", b"[]"),
        ("state.json", b"[" * 100_000),
        ("state.json", b'{"a": {"$tensor": "nowhere"}}'),
        ("state.json", b'{"a": {"$pickle": "gASVAAAA"}}'),
        ("state.json", b'{"a": {"$dict": [[[], 1]]}}'),
        ("state.json", b'{"a": {"$int": "0xg"}}'),
        ("agent.safetensors", b""),
        ("agent.safetensors", b"\xff" * 64),
        ("agent.safetensors", b"\x80\x04\x95pickle"),
    ],
)
def test_forged_content_gives_one_line(run, part, content):
    replace_listed(run / "snapshots/step_000000002", part, content)
    with pytest.raises(SnapshotError, match=rf"^step_000000002: {part}: cannot be read [^\n]*$"):
        Store(run).load("step_000000002")


def test_snapshot_verification_refuses_links_and_unlisted_files(run, tmp_path_factory):
    latest, outside = run / "snapshots/step_000000002", tmp_path_factory.mktemp("outside")
    (latest / "extra").touch()
    with pytest.raises(SnapshotError, match="does not list 'extra'"):
        Store(run).load(latest.name)
    (latest / "extra").unlink()
    (latest / "replay/extra").mkdir()
    with pytest.raises(SnapshotError, match="does not list 'replay/extra'"):
        Store(run).load(latest.name)
    (latest / "replay/extra").rmdir()
    for name in ("state.json", "replay", "manifest.json", ""):
        moved = outside / (name or latest.name)
        shutil.move(latest / name, moved)
        (latest / name).symlink_to(moved)
        with pytest.raises(SnapshotError, match=r"does not list|is a link|is a symbolic link"):
            Store(run).load(latest.name)
        (latest / name).unlink()
        shutil.move(moved, latest / name)
    assert Store(run).load().faults == []


def test_swapped_manifests_are_found(run):
    one, two = (run / f"snapshots/step_00000000{step}/manifest.json" for step in (1, 2))
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    snapshot = Store(run).load()
    assert snapshot.name == "best"
    assert [fault.split(": ")[0] for fault in snapshot.faults] == ["step_000000002", "step_000000001"]
    forge(one.parent, lambda m: m.update(name=one.parent.name))
    with pytest.raises(SnapshotError, match="step_000000001: "):
        Store(run).load(one.parent.name)


def test_best_snapshot_of_a_run_without_another_is_no_fallback(tmp_path):
    target = Store(tmp_path, keep=1)
    target.save("best", {"a": 1}, {}, {}, {})
    target.close()
    snapshot = Store(tmp_path).load()
    assert (snapshot.name, snapshot.faults) == ("best", [])


def test_snapshot_fallback_goes_from_newest_to_best_with_reasons(run):
    folder = run / "snapshots"
    seen = []
    for name in ("step_000000002", "step_000000001", "best"):
        snapshot = Store(run).load()
        assert (snapshot.name, len(snapshot.faults)) == (name, len(seen))
        assert equal(restored(snapshot), grown(50 if name.endswith("2") else 40))
        flip(folder / name / "replay/segment_000001.bin", 100)
        seen.append(f"{name}: replay/segment_000001.bin: hash differs")
    with pytest.raises(SnapshotError) as error:
        Store(run).load()
    assert str(error.value).splitlines() == seen
    with pytest.raises(SnapshotError, match="no snapshot"):
        Store(run / "elsewhere").load()


def test_state_that_could_not_be_read_back_is_refused_at_once(tmp_path, monkeypatch):
    target = Store(tmp_path, keep=2)
    monkeypatch.setattr(manifest, "NODE_LIMIT", 100)
    with pytest.raises(ValueError, match="more than 100 items"):
        target.save(step_name(1), {"a": [0] * 100}, {}, {}, {})
    monkeypatch.setattr(manifest, "STATE_LIMIT", 100)
    with pytest.raises(ValueError, match="more than 100 bytes"):
        target.save(step_name(1), {"a": "x" * 100}, {}, {}, {})
    with pytest.raises(ValueError, match="not JSON compliant"):
        target.save(step_name(1), {}, {}, {"step": float("nan")}, {})
    assert target.names() == []


@pytest.mark.parametrize("kind", ["pipe", "folder", "link", "huge"])
def test_snapshot_fallback_skips_a_latest_that_is_no_small_file(run, kind):
    latest = run / "snapshots/LATEST"
    latest.unlink()
    if kind == "pipe":
        os.mkfifo(latest)
    elif kind == "folder":
        latest.mkdir()
    elif kind == "link":
        (run / "elsewhere").write_text("step_000000001")
        latest.symlink_to(run / "elsewhere")
    else:
        latest.write_text("step_000000001" + " " * 1000)
    snapshot = Store(run).load()
    assert (snapshot.name, snapshot.faults) == ("step_000000002", ["LATEST: names no snapshot"])


@pytest.mark.parametrize("text", [None, "", "../../etc", "step_000000009", "best/../best", "\0"])
def test_snapshot_fallback_skips_a_damaged_latest(run, text):
    (run / "snapshots/LATEST").unlink()
    if text is not None:
        (run / "snapshots/LATEST").write_text(text)
    snapshot = Store(run).load()
    assert snapshot.name == "step_000000002"
    assert len(snapshot.faults) == 1


def test_snapshot_loaded_by_name_has_no_fallback(run):
    assert Store(run).load("best").name == "best"
    for name in ("step_000000003", "../snapshots/best", "LATEST", ""):
        with pytest.raises(SnapshotError):
            Store(run).load(name)


def test_state_of_an_earlier_format_has_todays_names(run, monkeypatch):
    (place, *_) = Store(run).load().state
    monkeypatch.setattr(history, "FORMAT", history.FORMAT + 2)
    for old, new in ((place, "agent.new"), ("agent", "learner")):
        change = history.FormatChange(state=(history.Renamed(old, new),))
        monkeypatch.setattr(history, "CHANGES", (*history.CHANGES, change))
    assert "learner.new" in Store(run).load().state


# retention, replacement, kills


def test_retention_keeps_the_latest_and_best(tmp_path):
    target = Store(tmp_path, keep=2)
    for step in (5, 10, 15, 20):
        save(target, step, grown(4 * step))
        if step == 5:
            save(target, step, grown(step), name="best")
    assert target.names() == [step_name(20), step_name(15), "best"]
    assert sorted(os.listdir(target.folder)) == sorted([*target.names(), "LATEST", store.STAGING])
    assert not list((target.folder / store.STAGING).rglob("*.bin"))


def test_best_is_linked_to_a_snapshot(tmp_path):
    store = Store(tmp_path, keep=1)
    save(store, 5, grown(5), "best")
    path = save(store, 10, grown(40))
    store.mark_best("step_000000010")
    best = Store(tmp_path).load("best")
    assert best.digest == Store(tmp_path).load().digest and equal(restored(best), grown(40))
    assert {file.name for file in path.rglob("*") if file.is_file() and file.stat().st_nlink == 1} == {"manifest.json"}
    save(store, 20, grown(60))
    assert not path.exists() and equal(restored(Store(tmp_path).load("best")), grown(40))
    with pytest.raises(SnapshotError, match=r"^best: cannot be linked to step_000000010: No such file"):
        store.mark_best("step_000000010")
    assert Store(tmp_path).names() == ["step_000000020", "best"] and not [*store.folder.glob(".*best")]


def test_snapshot_archive_keeps_the_first_of_each_period(tmp_path):
    steps = (30, 60, 95, 110, 140, 200, 215, 330, 340, 399, 410)  # past multiples, on one, and past two at once
    for run, resumed in enumerate([False, True]):
        (tmp_path / str(run)).mkdir()
        target = Store(tmp_path / str(run), keep=2, archive_every=100)
        for step in steps:
            if resumed:
                target = Store(tmp_path / str(run), keep=2, archive_every=100)
            save(target, step, grown(step))
        assert target.names() == [step_name(step) for step in (410, 399, 330, 200, 110)]
        assert equal(restored(Store(tmp_path / str(run)).load(step_name(110))), grown(110))


def test_snapshots_of_later_steps_are_removed_after_a_fallback(tmp_path):
    target = Store(tmp_path, keep=2)
    for step in (10, 20, 30):
        save(target, step, grown(step))
    save(target, 25, grown(25))
    assert target.names() == [step_name(25), step_name(20)]
    assert Store(tmp_path).load().name == step_name(25)


def test_saving_a_name_again_replaces_it(tmp_path):
    target, ring = Store(tmp_path, keep=2), grown(40)
    save(target, 7, ring)
    ring.extend(1)
    save(target, 7, ring, clock=2.0)
    assert Store(tmp_path).load().clocks == {"wall_s": 2.0}
    assert equal(restored(Store(tmp_path).load()), ring)


def test_snapshot_reader_writes_nothing(run):
    leftover = run / "snapshots/.tmp-step_000000003"
    leftover.mkdir()
    reader = Store(run)
    reader.load()
    with pytest.raises(ValueError, match="cannot save"):
        save(reader, 3, grown(1))
    assert leftover.exists()


def test_snapshot_folder_sweep_removes_leftovers_and_restores_a_replaced_one(run):
    folder = run / "snapshots"
    (folder / ".tmp-step_000000003/replay").mkdir(parents=True)
    (folder / ".trash-x").mkdir()
    (folder / ".tmp-LATEST").write_text("step")
    (folder / "best").rename(folder / ".old-best")
    shutil.copytree(folder / "step_000000001", folder / ".old-step_000000001")
    target = Store(run, keep=2)
    assert sorted(os.listdir(folder)) == ["LATEST", "best", "step_000000001", "step_000000002"]
    assert target.load("best").name == "best"


def test_snapshot_is_synced_before_its_rename(tmp_path, monkeypatch):
    target, ring = Store(tmp_path, keep=2), grown(40)
    synced, rename = [], os.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}"))))

    def last(source, name):
        if Path(name).name == "step_000000001":
            due = {path.name for path in (source, *Path(source).rglob("*"))}
            assert due <= {path.name for path in synced}
            synced.clear()
        rename(source, name)

    monkeypatch.setattr(os, "replace", last)
    save(target, 1, ring)
    assert synced[0] == target.folder
    assert [path.name for path in synced[1:]] == [".tmp-LATEST", "snapshots"]


KILLS = """
import os, random, signal, sys, time, torch
from pathlib import Path
from stores import MemoryRing
from rlrun.snapshot import segments
from rlrun.snapshot.store import Store, step_name

segments.SEGMENT_ROWS = 16
run, rows = Path(sys.argv[1]), 9

def resume(target):
    ring = MemoryRing(100)
    if not target.names():
        return ring
    snapshot = target.load()
    assert not snapshot.faults, snapshot.faults
    snapshot.restore_ring("replay", ring)
    assert ring.total == rows * int(snapshot.state["step"])
    return ring

def train(pipe):
    target = Store(run, keep=2)
    ring = resume(target)
    while True:
        ring.extend(rows)
        step = ring.total // rows
        state = {"step": torch.tensor(step), "agent.w": torch.full((1000,), float(step))}
        target.save(step_name(step), state, {"replay": ring}, {}, {})
        target.wait()
        os.write(pipe, step.to_bytes(8, "little"))
        target.save("best", state, {}, {}, {})

for attempt in range(10):
    source, pipe = os.pipe()
    child = os.fork()
    if child == 0:
        train(pipe)
    for _ in range(random.randint(1, 3)):
        reached = int.from_bytes(os.read(source, 8), "little")
    time.sleep(random.uniform(0, 0.02))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    ring, true = resume(Store(run)), MemoryRing(100)
    true.extend(ring.total)
    assert ring.total >= rows * reached
    assert all(torch.equal(column, true.alive()[name]) for name, column in ring.alive().items())
"""


def test_kill_9_in_a_loop_of_saves_leaves_a_loadable_latest(tmp_path):
    places = [str(Path(__file__).parents[1]), str(Path(store.__file__).parents[2])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", KILLS, str(tmp_path)], env=environment, check=True)


def test_a_copy_is_held_until_files_of_its_rows_are_removed(tmp_path):
    target, ring = Store(tmp_path, keep=2), grown(90)  # of 100 rows, in segments of 16
    assert target.may_hold(is_due=False)
    target.hold(step_name(1), state(1), {"replay": ring}, {"step": 1}, {"wall_s": 0.0})
    ring.extend(10)
    target.seal({"replay": ring})
    assert target.held == step_name(1) and not target.may_hold(is_due=False) and target.may_hold(is_due=True)
    ring.extend(20)  # overwrites rows of the first segment
    deadline = time.monotonic() + 10
    while target.held is not None and time.monotonic() < deadline:  # a disk that is too slow puts it off
        target.seal({"replay": ring})
    assert target.held is None and target.may_hold(is_due=False)
    target.hold(step_name(2), state(2), {"replay": ring}, {"step": 2}, {"wall_s": 0.0})
    held = grown(120)
    ring.extend(5)
    target.save_held()
    target.close()
    snapshot = Store(tmp_path).load()
    assert snapshot.name == step_name(2) and equal(restored(snapshot), held)


def test_a_snapshot_replaces_the_copy_that_is_held(tmp_path):
    target, ring = Store(tmp_path, keep=2), grown(40)
    target.hold(step_name(1), state(1), {"replay": ring}, {"step": 1}, {"wall_s": 0.0})
    target.save(step_name(2), state(2), {"replay": ring}, {"step": 2}, {"wall_s": 0.0})
    assert target.held is None and not target.may_hold(is_due=True), "while the snapshot is being written"
    target.wait()
    assert target.may_hold(is_due=False)
    target.close()
