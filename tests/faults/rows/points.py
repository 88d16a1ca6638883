"""kill -9 at every call that touches the disk, inside the write of a snapshot and around it."""

import itertools
import os
import signal
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

from faulty_disk import CALLS
from stores import quick_folder

from rlrun.snapshot import segments
from rows import Options, Tally, some
from rows.processes import Board
from rows.runs import SEGMENT_ROWS, Disturbed, words

TINY = {
    "ppo": words(160, 40, "algo=ppo", "env=CartPole", "env.num_envs=1", "algo.epochs=1", "algo.loop.rollout_steps=10"),
    "sac": words(160, 40, "algo=sac", "env=InvertedPendulum", "algo.loop.warmup_steps=100", "algo.buffer.capacity=110"),
}


def calls(prepare: Callable[[int], object]) -> Callable[[Board], None]:
    """Runs a child process in which `prepare(number)` is called before every call that touches the disk."""

    def patch(board: Board) -> None:
        numbers, board["calls"] = itertools.count(), 0

        def counted(real: Callable) -> Callable:
            def call(*args: object, **given: object) -> object:
                prepare(next(numbers))
                board["calls"] += 1
                return real(*args, **given)

            return call

        for name in CALLS:
            setattr(os, name, counted(getattr(os, name)))

    return patch


def die_at(number: int) -> Callable[[Board], None]:
    return calls(lambda now: os.kill(os.getpid(), signal.SIGKILL) if now == number else None)


def every_call(options: Options) -> Tally:
    """Kills a run at each of the calls with which it touches the disk during a few snapshots."""
    tally, notes = Tally(), []
    segments.SEGMENT_ROWS = SEGMENT_ROWS
    for algo, start in TINY.items():
        with quick_folder() as folder, chdir(folder):
            notes.append(f"{algo} {at_calls(algo, start, folder, options, tally)} of them")
    tally.note = f"{', '.join(CALLS)}: {'; '.join(notes)}"
    return tally


def at_calls(algo: str, start: list[str], folder: Path, options: Options, tally: Tally) -> int:
    alone = Disturbed(folder / "alone", start)
    child = alone.go(calls(lambda number: None))
    if child.finish() != 0:
        raise RuntimeError(child.said())
    total = child.board["calls"]
    share = options.count and max(1, options.count // len(TINY))
    for number in some(share, list(range(total)), options.random(f"points {algo}")):
        run = Disturbed(folder / "run", start)
        killed = run.go(die_at(number))
        code = killed.finish()
        if code == -signal.SIGKILL:
            tally.cases += 1
            place = f"{algo}, call {number}"
            tally.failures += [f"{place}: {fault}" for fault in run.broken()]
            after(place, run, alone, tally)
        run.clear()
    return total


def after(place: str, run: Disturbed, alone: Disturbed, tally: Tally) -> None:
    """The next process continues from a snapshot that was reported as saved, and ends like an undisturbed run."""
    promised, child = run.latest(), run.go(calls(lambda number: None))
    code = child.finish()
    began = child.board["began"]
    tally.expect(began in (-1, max(0, promised)), f"{place}: step {promised} was on disk, the resume began at {began}")
    faults = run.differences(alone) if code == 0 else [f"exit code {code}: {child.said()[-500:]}"]
    tally.failures += [f"{place}: {fault}" for fault in faults]
