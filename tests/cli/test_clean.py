"""`rlrun clean`, as a user types it: what is listed, what is removed, and what must stay."""

import errno
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from made_runs import make_run
from stores import MemoryRing, save, state

from rlrun.cli import main
from rlrun.run.cleaning import freed_bytes, removable
from rlrun.rundir import RunDir
from rlrun.snapshot import atomic, segments
from rlrun.snapshot.store import Store, step_name
from rlrun.telemetry.formatting import size


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT_ROWS", 16)


def make(path: Path, steps: tuple[int, ...] = (10, 20, 30), best: int = 20) -> Path:
    """A run with these snapshots, whose ring grows by 40 rows each."""
    make_run(path, {30: 1.0}, snapshot=False)
    store, ring = Store(path, keep=9), MemoryRing(1000)
    for step in steps:
        ring.extend(40)
        save(store, step, ring)
        if step == best:
            save(store, step, ring, "best")
    store.close()
    return path


def say(capsys: Any, *words: str) -> tuple[int, list[str], list[str]]:
    code = main(words)
    out, err = capsys.readouterr()
    return code, out.splitlines(), err.splitlines()


def disk(path: Path) -> int:
    """The bytes of all files below a folder, hard links counted once."""
    found = {file.lstat().st_ino: file.lstat().st_size for file in path.rglob("*") if file.is_file()}
    return sum(found.values())


def test_clean_leaves_the_latest_and_the_best_snapshot_whole(tmp_path: Path, capsys: Any) -> None:
    path = make(tmp_path / "a")
    before, expected = disk(path), freed_bytes(removable(path))
    code, out, err = say(capsys, "clean", str(tmp_path), "--yes")
    assert (code, err) == (0, [])
    assert out[1].split()[:3] == [str(path), "step_000000020,", "step_000000010"]
    assert before - disk(path) == pytest.approx(expected, abs=200), "the lock file is written"
    assert 0 < expected < before / 2, "segments that the latest snapshot links stay"
    store = Store(path)
    assert store.names() == [step_name(30), "best"]
    for name, step in ((None, 30), ("best", 20)):
        snapshot = store.load(name)
        assert snapshot.header["step"] == step and snapshot.faults == []
        assert snapshot.state["loop._extra_state"] == state(step)["loop._extra_state"]
        ring = MemoryRing(1000)
        snapshot.restore_ring("replay", ring)
        assert ring.total == {30: 120, 20: 80}[step]
    assert say(capsys, "clean", str(path), "--yes")[:2] == (0, ["nothing to remove"])


def test_clean_asks_and_lists_only_without_a_terminal(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = make(tmp_path / "runs" / "a")
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    code, out, _ = say(capsys, "clean")
    assert (code, out[-1]) == (0, "nothing was removed; --yes removes without asking")
    for answer, left in (("n\n", 4), ("", 4), ("y\n", 2)):
        terminal = io.StringIO(answer)
        monkeypatch.setattr(terminal, "isatty", lambda: True)
        monkeypatch.setattr(sys, "stdin", terminal)
        assert say(capsys, "clean")[0] == 0
        assert len(Store(path).names()) == left


def test_clean_leaves_a_run_in_use_alone(tmp_path: Path, capsys: Any) -> None:
    path = make(tmp_path / "a")
    run = RunDir.open(path)
    code, out, err = say(capsys, "clean", str(path), "--yes")
    run.release()
    assert (code, err) == (0, []) and out[1].endswith("in use: left alone") and out[-1] == "nothing else to remove"
    assert len(Store(path).names()) == 4


def test_clean_removes_nothing_if_the_latest_snapshot_is_damaged_or_missing(tmp_path: Path, capsys: Any) -> None:
    path = make(tmp_path / "a")
    agent = path / "snapshots" / step_name(30) / "agent.safetensors"
    agent.write_bytes(agent.read_bytes()[:-1])
    code, _, err = say(capsys, "clean", str(path), "--yes")
    assert code == 3
    assert err == [f"error: {path}: {step_name(30)}: agent.safetensors: size differs; nothing was removed"]
    assert len(Store(path).names()) == 4
    (path / "snapshots" / "LATEST").write_text("step_000000099\n")
    assert say(capsys, "clean", str(path), "--yes")[:2] == (0, ["nothing to remove"])
    assert len(Store(path).names()) == 4


def test_clean_follows_no_link(tmp_path: Path, capsys: Any) -> None:
    elsewhere = make(tmp_path / "elsewhere" / "b")
    path = make(tmp_path / "runs" / "a")
    (path / "snapshots" / step_name(5)).symlink_to(elsewhere)
    code, out, err = say(capsys, "clean", str(tmp_path / "runs"), "--yes")
    assert (code, out) == (0, ["nothing to remove"])
    assert err[0].startswith("skipped ") and "is a symbolic link" in err[0]
    assert len(Store(path).names()) == 5 and len(Store(elsewhere).names()) == 4
    (path / "snapshots" / step_name(5)).unlink()
    (tmp_path / "runs" / "linked").symlink_to(elsewhere)
    assert say(capsys, "clean", str(tmp_path / "runs"), "--yes")[0] == 0
    assert len(Store(path).names()) == 2 and len(Store(elsewhere).names()) == 4


def test_clean_removes_the_post_mortem_of_a_fault_that_the_run_has_passed(tmp_path: Path, capsys: Any) -> None:
    for step, stays in ((29, False), (30, True), (None, True)):
        path = make(tmp_path / str(step), steps=(30,), best=30)
        (path / "postmortem").mkdir()
        (path / "postmortem" / "facts.json").write_text(json.dumps({"step": step}))
        assert say(capsys, "clean", str(path), "--yes")[0] == 0
        assert (path / "postmortem").exists() == stays and len(Store(path).names()) == 2


def test_clean_refuses_unknown_words(tmp_path: Path, capsys: Any) -> None:
    assert say(capsys, "clean", str(tmp_path / "no"))[::2] == (2, [f"error: {tmp_path / 'no'}: no such folder"])
    assert say(capsys, "clean", "--force")[::2] == (2, ["error: unknown option --force"])
    assert say(capsys, "clean", "--")[::2] == (2, ["error: unknown option --"])
    assert say(capsys, "clean", "-y")[::2] == (2, ["error: unknown option -y; did you mean --yes?"])
    for command in ("clean", "tail"):
        assert say(capsys, command, "")[::2] == (2, ["error: '': an empty word; a folder must have a name"])


def test_clean_names_what_cannot_be_removed_and_goes_on_with_the_next_run(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck, free = make(tmp_path / "a", steps=(10, 20)), make(tmp_path / "b", steps=(10, 20))
    real = atomic.rename

    def rename(source: Path, target: Path) -> None:
        if source.is_relative_to(stuck / "snapshots"):
            raise PermissionError(errno.EPERM, "Operation not permitted", str(source))
        real(source, target)

    monkeypatch.setattr(atomic, "rename", rename)
    expected = freed_bytes(removable(free))
    code, out, err = say(capsys, "clean", str(tmp_path), "--yes")
    path = stuck / "snapshots" / step_name(10)
    assert (code, err) == (1, [f"error: {path}: cannot be removed (Operation not permitted)"])
    assert out[-1] == f"freed {size(expected)}"
    assert len(Store(stuck).names()) == 3 and len(Store(free).names()) == 2


def test_clean_counts_what_it_has_freed_and_removes_what_was_left_behind(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path / "a", steps=(10, 20))
    with monkeypatch.context() as patch:  # killed in the middle of a removal
        patch.setattr(atomic.shutil, "rmtree", lambda *given, **named: None)
        assert say(capsys, "clean", str(path), "--yes")[1][-1] == "freed 0 B"
    (path / "snapshots" / ".tmp-step_000000099").mkdir()
    (path / "snapshots" / ".old-best").mkdir()
    expected = freed_bytes(removable(path))
    code, out, err = say(capsys, "clean", str(path), "--yes")
    assert (code, err, out[-1]) == (0, [], f"freed {size(expected)}") and expected > 0
    assert {file.name for file in (path / "snapshots").iterdir()} == {step_name(20), "best", "LATEST"}
