"""Runs a program in this process and tells what it took from one environment step to another:

    clocked.py FILE FIRST LAST script.py|-m module [argument ...]

Every library makes its environments with gymnasium.make and steps them here, so that all have the same clock. Steps are
those of one environment: of the first that takes so many, for some libraries try environments before they train. When
step LAST is done, and what is learned from it, FILE gets wall and CPU seconds since step FIRST, and those from the
start until then, as JSON; the program is not let end.
"""

import json
import os
import runpy
import sys
import time
from pathlib import Path

from gymnasium.wrappers import OrderEnforcing

BEGAN = time.perf_counter() - time.process_time()  # of the process, near enough


def watch(file: Path, first: int, last: int) -> None:
    begun: list[float] = []
    plain = OrderEnforcing.step

    def counted(self: OrderEnforcing, action: object) -> object:
        self.taken += 1
        if self.taken == first + 1 and not begun:
            begun.extend((time.perf_counter(), time.process_time()))
        elif self.taken == last + 1:
            wall, cpu = time.perf_counter() - begun[0], time.process_time() - begun[1]
            file.write_text(json.dumps([wall, cpu, begun[0] - BEGAN]))
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
