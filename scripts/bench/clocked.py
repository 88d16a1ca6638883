"""Runs a program in this process and tells what it took from one environment step to another:

    clocked.py FILE FIRST LAST script.py|-m module [argument ...]

Every library makes its environments with gymnasium.make and steps them here, so that all have the same clock. Steps are
those of one environment: of the first that takes so many, for some libraries try environments before they train. When
step LAST is done, and what is learned from it, FILE gets wall and CPU seconds since step FIRST, those from the start
until then, and the updates between, as JSON; the program is not let end.
"""

import gc
import json
import os
import runpy
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


def watch(file: Path, first: int, last: int) -> None:
    begun: list[float] = []
    plain = OrderEnforcing.step

    def counted(self: OrderEnforcing, action: object) -> object:
        self.taken += 1
        if self.taken == first + 1 and not begun:
            begun.append(updates())
            begun.extend((time.perf_counter(), time.process_time()))
        elif self.taken == last + 1:
            updated, wall, cpu = begun
            now, spent = time.perf_counter(), time.process_time()
            file.write_text(json.dumps([now - wall, spent - cpu, wall - BEGAN, updates() - updated]))
            os._exit(0)
        return plain(self, action)

    OrderEnforcing.taken, OrderEnforcing.step = 0, counted


if __name__ == "__main__":
    file, first, last, *program = sys.argv[1:]
    watch(Path(file).absolute(), int(first), int(last))
    if program[0] == "-m":
        sys.argv = program[1:]
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = program
        runpy.run_path(program[0], run_name="__main__")
