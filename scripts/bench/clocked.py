"""Runs a program in this process and measures the time between environment steps:

    clocked.py FILE FIRST STEPS TIMES script.py|-m module [argument ...]

Every library creates its environments with gymnasium.make, whose wrapper OrderEnforcing counts the steps here, so all
libraries are measured in the same way. Steps are counted for each environment, and the first environment to reach a
number counts, because some libraries try out environments before they train.

At step FIRST, the process writes the seconds since its start to FILE.ready and waits for SIGCONT. It then measures
TIMES intervals of STEPS steps, including the updates in between. Finally it writes FILE as JSON and exits. FILE holds
wall-clock and CPU seconds at the beginning and after each interval, and the number of updates.
"""

import gc
import json
import os
import runpy
import signal
import sys
import time
from pathlib import Path

from gymnasium.wrappers import OrderEnforcing

BEGAN = time.perf_counter() - time.process_time()  # approximate start of the process


def updates() -> int:
    """Returns the largest number of steps that any optimiser in this process has taken, by its own counter.

    Finds optimisers of torch, Optax and rlrun.
    """
    counts = [0]
    for thing in gc.get_objects():
        kinds = {kind.__name__ for kind in type(thing).__mro__}
        if "ScaleByAdamState" in kinds:
            counts.append(int(thing.count))
        elif "Optim" in kinds:
            counts.append(int(thing.steps))
        elif "Optimizer" in kinds and hasattr(thing, "param_groups"):
            counts += [int(state["step"]) for state in thing.state.values()]
    return max(counts)


def wait_for_turn(file: Path) -> None:
    """Writes FILE.ready and waits for SIGCONT."""
    received: list[int] = []
    signal.signal(signal.SIGCONT, lambda *_: received.append(1))
    file.with_suffix(".ready").write_text(str(time.perf_counter() - BEGAN))
    while not received:
        time.sleep(1e-3)


def watch(file: Path, first: int, steps: int, times: int) -> None:
    """Counts the steps of each environment in this process, and writes the file after the last interval."""
    marks: list[tuple[float, float]] = []
    before = 0
    plain = OrderEnforcing.step

    def counted(self: OrderEnforcing, action: object) -> object:
        nonlocal before
        self.taken += 1
        if self.taken == first + 1 + len(marks) * steps:
            if not marks:
                before = updates()
                wait_for_turn(file)
            marks.append((time.perf_counter(), time.process_time()))
            if len(marks) > times:
                file.write_text(json.dumps([marks, updates() - before]))
                os._exit(0)
        return plain(self, action)

    OrderEnforcing.taken, OrderEnforcing.step = 0, counted


if __name__ == "__main__":
    file, first, steps, times, *program = sys.argv[1:]
    watch(Path(file).absolute(), int(first), int(steps), int(times))
    if program[0] == "-m":
        sys.argv = program[1:]
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = program
        runpy.run_path(program[0], run_name="__main__")
