"""Failing system calls, and power cuts between two calls: saved data stay."""

import errno
import itertools
import os
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

import test_snapshot_disk as store
import test_snapshot_power as power
from faulty_disk import CALLS, Faulty
from stores import quick_folder, three

from rlrun.snapshot import segments
from rows import Options, Tally, some
from rows.points import TINY, after, calls
from rows.processes import Board
from rows.runs import SEGMENT_ROWS, Disturbed

Case = tuple[str, int, int, bool]  # name of the call, its number, error, whether it lasts


def failing_calls(options: Options) -> Tally:
    """Every nth call fails: in a store with every error, once or from then on, or as the last call of the process; in
    whole runs with ENOSPC and EIO in turn."""
    tally = Tally()
    segments.SEGMENT_ROWS = SEGMENT_ROWS
    part = options.count and max(3, options.count // 3)
    with quick_folder() as folder, chdir(folder):
        (folder / "base").mkdir()
        base = three(folder / "base")
        with_errors = in_a_store(base, options, part, tally)
        kills = deaths(base, options, part, tally)
    runs = sum(in_runs(algo, options, part and max(1, part // len(TINY)), tally) for algo in TINY)
    tally.note = f"{with_errors} errors and {kills} kills in a store, {runs} errors in whole runs"
    return tally


def in_a_store(base: Path, options: Options, count: int | None, tally: Tally) -> int:
    digests, cases = store.undisturbed(base), list[Case]()
    for call in CALLS:
        with store.copied(base) as run, Faulty(call) as fault:
            store.Training(run).go_on(3)
        cases += itertools.product([call], range(fault.count), store.ERRORS, (False, True))
    chosen = some(count, cases, options.random("calls"))
    for call, nth, error, lasting in chosen:
        place = f"{call} number {nth} fails with {errno.errorcode[error]}{' and all after it' * lasting}"
        with store.copied(base) as run:
            fault = Faulty(call, nth, error, lasting)
            judge(place, lambda run=run, fault=fault: store.survive(run, fault, digests), tally)
    return len(chosen)


def deaths(base: Path, options: Options, count: int | None, tally: Tally) -> int:
    with store.copied(base) as run, Faulty() as fault:
        store.Training(run).go_on(3)
    chosen = some(count, list(range(fault.count)), options.random("deaths"))
    for nth in chosen:
        with store.copied(base) as run:
            judge(f"killed at call {nth}", lambda run=run, nth=nth: store.die(run, nth), tally)
    return len(chosen)


def judge(place: str, trial: Callable[[], object], tally: Tally) -> None:
    tally.cases += 1
    try:
        trial()
    except Exception as error:  # including AssertionErrors of the short version
        tally.failures.append(f"{place}: {type(error).__name__}: {str(error)[:300]}")


def in_runs(algo: str, options: Options, count: int | None, tally: Tally) -> int:
    with quick_folder() as folder, chdir(folder):
        alone = Disturbed(folder / "alone", TINY[algo])
        child = alone.go(calls(lambda number: None))
        if child.finish() != 0:
            raise RuntimeError(child.said())
        chosen = some(count, list(range(child.board["calls"])), options.random(f"runs {algo}"))
        for number in chosen:
            run = Disturbed(folder / "run", TINY[algo])
            one_run(algo, number, run, alone, tally)
            run.clear()
    return len(chosen)


def one_run(algo: str, number: int, run: Disturbed, alone: Disturbed, tally: Tally) -> None:
    """A run with one error either ends like without the error, or stops with a one-line message and can be resumed."""
    error = (errno.ENOSPC, errno.EIO)[number % 2]
    place = f"{algo}, call {number} fails with {errno.errorcode[error]}"
    child = run.go(fail_at(number, error))
    code = child.finish()
    tally.cases += 1
    said = child.said()
    tally.failures += [f"{place}: {fault}" for fault in run.broken()]
    tally.expect(code in (0, 1, 2, 3), f"{place}: exit code {code}")
    tally.expect("Traceback" not in said, f"{place}: {said[-300:]}")
    if code == 0:
        tally.failures += [f"{place}: {fault}" for fault in run.differences(alone)]
    else:
        tally.expect("error: " in said, f"{place}: exit code {code} without a line")
        after(place, run, alone, tally)


def fail_at(number: int, error: int) -> Callable[[Board], None]:
    def fail(now: int) -> None:
        if now == number:
            raise OSError(error, os.strerror(error))

    return calls(fail)


def power_cuts(options: Options) -> Tally:
    """Cuts the power after every call of two snapshots, with the least and the most that the disk may have kept."""
    segments.SEGMENT_ROWS = SEGMENT_ROWS
    cuts = list[int]()
    after = power.Disk.after
    power.Disk.after = lambda self, count: cuts.append(count) or after(self, count)  # type: ignore[assignment]
    failures = power.lost()
    return Tally(2 * len(cuts), failures, f"after each of {len(cuts) - 1} calls; a model of a disk that forgets")
