"""Runs a program in this process and tells what it took from one environment step to another:

    clocked.py FILE FIRST STEPS TIMES script.py|-m module [argument ...]

Every library makes its environments with gymnasium.make and steps them here, so that all have the same clock. Steps are
those of one environment: of the first that takes so many, for some libraries try environments before they train. At
step FIRST it writes FILE.ready, with the seconds until then, and waits for SIGCONT. When so many STEPS are done so many
TIMES, and what is learned from them, FILE gets the time on the machine's clock and the CPU seconds then, at the
beginning and after each time, and the number of updates, as JSON; the program is not let end.
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

BEGAN = time.perf_counter() - time.process_time()  # of the process, near enough


def updates() -> int:
    """How often the busiest optimiser in this process has moved its parameters, be it torch's, Optax's or rlrun's: its
    own count."""
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
    """Write that it is ready, and wait for SIGCONT."""
    received: list[int] = []
    signal.signal(signal.SIGCONT, lambda *_: received.append(1))
    file.with_suffix(".ready").write_text(str(time.perf_counter() - BEGAN))
    while not received:
        time.sleep(1e-3)


def watch(file: Path, first: int, steps: int, times: int) -> None:
    """Count the steps of all environments in this process, and write the file when they are done."""
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
