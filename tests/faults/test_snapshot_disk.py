"""Every system call of a snapshot fails once, or from then on, or is the last of the process: saved data stay."""

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from faulty_disk import CALLS, Faulty, Killed
from stores import digest, equal, grown, quick_folder, restored, save, state, three

from rlrun.errors import SnapshotError
from rlrun.snapshot import segments
from rlrun.snapshot.store import Store, step_name

ERRORS = (errno.ENOSPC, errno.EIO, errno.EINTR, errno.EROFS, errno.EACCES, errno.EDQUOT)


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT_ROWS", 16)


@pytest.fixture
def base() -> Iterator[Path]:
    with quick_folder() as folder:
        (folder / "base").mkdir()
        yield three(folder / "base")


@contextmanager
def copied(base: Path) -> Iterator[Path]:
    """Returns a copy of the run."""
    copy = base.with_name("copy")
    shutil.copytree(base, copy)
    yield copy
    shutil.rmtree(copy)


class Training:
    """Uses the store like a trainer, from resume to the next snapshot: adds 45 rows and seals segments."""

    def __init__(self, run: Path):
        self.store = Store(run, keep=2)
        self.ring = restored(self.store.load())
        self.errors: list[str] = []

    def go_on(self, step: int) -> None:
        for _ in range(3):
            self.ring.extend(15)
            self.store.seal({"replay": self.ring})
        try:
            self.store.save(["best", step_name(step)], state(step), {"replay": self.ring}, {"step": step}, {})
            self.store.wait()
        except SnapshotError as error:
            self.errors.append(str(error))


def undisturbed(base: Path) -> tuple[str, str]:
    """Returns the digests of steps 3 and 4 without a fault."""
    with copied(base) as run:
        training = Training(run)
        training.go_on(3)
        training.go_on(4)
        training.store.close()
        return digest(run / "snapshots" / step_name(3)), digest(run / "snapshots" / step_name(4))


def check_readable(run: Path) -> str:
    """Checks that the latest snapshot is whole and holds the rows of its step. Returns its name."""
    snapshot = Store(run).load()
    assert not snapshot.faults
    total = {2: 50, 3: 95, 4: 140}[snapshot.header["step"]]
    assert equal(restored(snapshot), grown(total))
    return snapshot.name


def survive(run: Path, fault: Faulty, digests: tuple[str, str]) -> bool:
    """Continues training after a fault; the next snapshot must be as without it. Returns whether the fault occurred."""
    training = Training(run)
    with fault:
        training.go_on(3)
    assert len(training.errors) <= 1
    assert all("\n" not in line and line.startswith(("best: ", "step_000000003: ")) for line in training.errors)
    if not fault.lasting:
        assert not list((run / "snapshots").glob(".tmp-step*")), "a disk that is full needs the room"
    name = check_readable(run)
    if not training.errors:
        assert name == step_name(3) and digest(run / "snapshots" / name) == digests[0]
    training.errors.clear()
    training.go_on(4)
    training.store.close()
    assert not training.errors
    assert check_readable(run) == step_name(4)
    assert digest(run / "snapshots" / step_name(4)) == digest(run / "snapshots/best") == digests[1]
    Store(run, keep=2)
    left = {path.name for path in (run / "snapshots").iterdir()}
    assert left in ({"best", "LATEST", step_name(4), step_name(earlier)} for earlier in (2, 3))
    return fault.count > fault.nth


def fail_every(base: Path, call: str, lasting: bool, errors: int) -> int:
    """Makes each nth call fail, with this number of errors in turn. Returns the number of faults tried."""
    digests, tried = undisturbed(base), 0
    for nth in range(1000):
        for error in range(errors):
            with copied(base) as run:
                if not survive(run, Faulty(call, nth, ERRORS[(nth + error) % len(ERRORS)], lasting), digests):
                    return tried
            tried += 1
    raise AssertionError(f"{call} never stopped failing")


@pytest.mark.parametrize("call", CALLS)
def test_failed_disk_call_costs_one_snapshot_at_most(base: Path, call: str) -> None:
    assert fail_every(base, call, lasting=False, errors=1) > 0


def test_a_disk_that_is_full_or_read_only_from_some_call_on_keeps_what_it_has(base: Path) -> None:
    assert fail_every(base, "fsync", lasting=True, errors=1) > 10


@pytest.mark.slow
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("call", CALLS)
def test_every_error_of_every_call(base: Path, call: str, lasting: bool) -> None:
    assert fail_every(base, call, lasting, errors=len(ERRORS)) > 0


def die(run: Path, nth: int) -> bool:
    """Kills at the nth call and checks that the next process loses nothing. Returns whether there was such a call."""
    training = Training(run)
    with Faulty(nth=nth) as fault:
        with suppress(Killed):
            training.go_on(3)
        training.store._writer.shutdown()  # a thread of the killed process
    before = check_readable(run)
    resumed = Training(run)
    assert step_name(int(resumed.store.load().header["step"])) == before
    assert resumed.store.load("best")
    assert not [path for path in resumed.store.folder.iterdir() if path.name.startswith(".")]
    resumed.ring.extend(140 - resumed.ring.total)
    save(resumed.store, 4, resumed.ring)
    assert check_readable(run) == step_name(4)
    resumed.store.close()
    return fault.count > nth


def test_kill_at_any_disk_call_keeps_the_last_snapshot(base: Path) -> None:
    digests = undisturbed(base)
    for nth in range(1000):
        with copied(base) as run:
            came = die(run, nth)
            assert digest(run / "snapshots" / step_name(4)) == digests[1]
        if not came:
            break
    assert 100 < nth < 999
