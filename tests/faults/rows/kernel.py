"""Faults injected by the operating system: system calls of whole runs fail or kill, by `strace --inject`.

strace counts the calls of each thread separately, so one number may apply to the training thread and to the writer.
"""

import itertools
import shutil
import subprocess
import time
from collections import Counter
from contextlib import chdir
from pathlib import Path

from stores import quick_folder

from rlrun.snapshot import segments
from rows import Options, Tally, some
from rows.points import TINY
from rows.processes import Board, Child
from rows.runs import SEGMENT_ROWS, Disturbed

SYSTEM_CALLS = ("write", "fsync", "rename", "mkdir", "unlink", "linkat", "link")
HOW = ("error=ENOSPC", "error=EIO", "signal=KILL")


def tampered(options: Options) -> Tally:
    if shutil.which("strace") is None:
        raise RuntimeError("strace is not installed")
    tally, done = Tally(), Counter[str]()
    segments.SEGMENT_ROWS = SEGMENT_ROWS
    for algo, start in TINY.items():
        with quick_folder() as folder, chdir(folder):
            alone = Disturbed(folder / "alone", start)
            counts = calls_of_threads(traced(alone, "trace"), folder)
            cases = [(call, nth, how) for call in SYSTEM_CALLS for nth in range(1, counts[call] + 1) for how in HOW]
            share = options.count and max(1, options.count // len(TINY))
            for call, nth, how in some(share, cases, options.random(f"kernel {algo}")):
                run = Disturbed(folder / "run", start)
                judge(f"{algo}, {call} {nth}, {how}", traced(run, f"inject={call}:{how}:when={nth}"), run, alone, tally)
                done[call] += 1
                run.clear()
    tally.note = ", ".join(f"{count} {call}" for call, count in done.items())
    return tally


def traced(run: Disturbed, what: str) -> Child:
    """Runs to the end under strace."""
    child = run.go(wait_for_tracer)
    expression = f"trace={','.join(SYSTEM_CALLS)}" if what == "trace" else what
    log = run.path.with_suffix(".strace")
    command = ["strace", "-f", "-qq", "-o", str(log), "-p", str(child.pid), "-e", expression]
    tracer = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    child.finish()
    tracer.wait()
    return child


def wait_for_tracer(board: Board) -> None:
    while "TracerPid:\t0\n" in Path("/proc/self/status").read_text():
        time.sleep(0.001)


def calls_of_threads(child: Child, folder: Path) -> Counter[str]:
    """Returns, for each call, the largest number of calls of one thread."""
    if child.code != 0:
        raise RuntimeError(child.said())
    lines = [line.split(maxsplit=1) for line in (folder / "alone.strace").read_text().splitlines()]
    made = Counter((thread, rest.partition("(")[0]) for thread, rest in lines)
    return Counter({call: max(group) for call, group in _by_call(made)})


def _by_call(made: Counter[tuple[str, str]]) -> list[tuple[str, list[int]]]:
    ordered = sorted((call, count) for (_, call), count in made.items())
    return [(call, [count for _, count in group]) for call, group in itertools.groupby(ordered, lambda one: one[0])]


def judge(place: str, child: Child, run: Disturbed, alone: Disturbed, tally: Tally) -> None:
    """Checks that all snapshots are whole, and that a run that stopped ends like an undisturbed run when resumed."""
    tally.cases += 1
    said = child.said()
    tally.failures += [f"{place}: {fault}" for fault in run.broken()]
    tally.expect(child.code in (0, 1, 2, 3, -9), f"{place}: exit code {child.code}: {said[-300:]}")
    if child.code != 0:
        again = run.go()
        tally.expect(again.finish() == 0, f"{place}: gone on with, exit code {again.code}: {again.said()[-300:]}")
    if (run.path / "snapshots" / "LATEST").exists():
        tally.failures += [f"{place}: {fault}" for fault in run.differences(alone)]
