"""The fault table: every fault, with all cases, in one table. `scripts/faults --help` explains the options.

Each row runs in a separate process, forked from this one after all imports. With --sabotage a protection is switched
off in these processes; the rows that guard it must then fail.
"""

import argparse
import importlib.util
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from rows import Options, Tally, damage, disk, kernel, kills, points, selftest, shards, stops, workers, writers
from rows.processes import aside, warm
from rows.runs import RUNS
from sabotage import PROTECTIONS, switch_off

SHOWN = 5  # maximum number of printed failures of a row
OF_SHARDS = ("kept", "handed", "order")
FEW = 40  # number of cases of a row with --sabotage


@dataclass(frozen=True)
class Row:
    key: str  # for --only
    fault: str
    try_it: Callable[[Options], Tally]
    guards: tuple[str, ...] = ()  # protections without which the row must fail


def all_rows(algos: list[str]) -> list[Row]:
    random_kills = [
        Row("kill", f"kill -9, random instants, {algo}", partial(kills.random_instants, algo), ("rng", "env"))
        for algo in algos
    ]
    return [
        *random_kills,
        Row("points", "kill -9 at the nth call", points.every_call, ("rename",)),
        Row("calls", "the nth system call fails", disk.failing_calls),
        Row("kernel", "the kernel refuses, or kills", kernel.tampered),
        Row("power", "the power fails", disk.power_cuts, ("fsync",)),
        Row("bits", "bit flips and truncations", damage.flips_and_cuts, ("hash",)),
        Row("malformed", "malformed snapshots", damage.of_malformed, ("verify",)),
        Row("signals", "signals at random instants", partial(stops.random_instants, algos), ("rng", "env")),
        Row("workers", "workers killed, stopped, slow, raising", workers.faults),
        Row("shards", "workers of shards killed or stopped", shards.lost_workers, OF_SHARDS),
        Row("ray", "actors of shards killed, machines removed and added", shards.lost_actors, OF_SHARDS),
        Row("sharded", "runs with workers of shards killed", shards.lost_runs),
        Row("writers", "two writers, 64 starts, 64 resumes", writers.at_once, ("lock",)),
        Row("selftest", "environments saved and restored", selftest.every_id, ("env",)),
    ]


def attempt(row: Row, options: Options, sabotaged: str | None) -> tuple[Tally, float]:
    """Runs a row. Returns its tally and duration. An exception of the row itself is a failure."""

    def task() -> dict[str, Any]:
        if sabotaged:
            switch_off(sabotaged)
        return vars(row.try_it(options))

    began = time.monotonic()
    try:
        tally = Tally(**aside(task))
    except RuntimeError as error:
        tally = Tally(failures=[f"the row itself failed: {error}"])
    tally.expect(tally.cases or tally.failures, "nothing was tried")
    return tally, time.monotonic() - began


def show(row: Row, tally: Tally, seconds: float) -> None:
    """Prints one line of the table as Markdown, and failures to stderr."""
    print(f"| {row.fault} | {tally.cases:,} | {len(tally.failures)} | {tally.note} ({seconds:.0f} s) |", flush=True)
    for failure in tally.failures[:SHOWN]:
        print(f"    {row.key}: {failure}", file=sys.stderr, flush=True)


def judge(rows: list[Row], red: list[Row], sabotaged: str | None) -> int:
    if not sabotaged:
        print(f"{len(rows)} rows, {len(red)} red")
        return 1 if red else 0
    for row in rows:
        print(f"without {sabotaged}: {row.fault}: {'red' if row in red else 'GREEN, and should not be'}")
    return 0 if rows and red == rows else 1


def main() -> int:
    options = read()
    rows = [row for row in all_rows(options.algos) if not options.only or row.key in options.only]
    if importlib.util.find_spec("ray") is None:
        print("Ray is not installed: its row is left out", file=sys.stderr)
        rows = [row for row in rows if row.key != "ray"]
    if options.sabotage:
        rows = [row for row in rows if options.sabotage in row.guards]
    count = options.count or (FEW if options.sabotage else None)
    os.environ["PYTHONWARNINGS"] = "ignore:resource_tracker"  # left by killed processes
    warm([[*RUNS[algo], "seed=1"] for algo in RUNS])
    print("| fault | cases | failures | note |\n|---|---|---|---|", flush=True)
    red = []
    for row in rows:
        tally, seconds = attempt(row, Options(count, options.seed), options.sabotage)
        show(row, tally, seconds)
        if tally.failures:
            red.append(row)
    return judge(rows, red, options.sabotage)


def read() -> argparse.Namespace:
    keys = sorted({row.key for row in all_rows([*RUNS])})
    parser = argparse.ArgumentParser(prog="scripts/faults", description="Try every fault; exit 1 if any row fails.")
    parser.add_argument("--only", type=known(keys), default=[], help=f"rows, with commas between: {','.join(keys)}")
    parser.add_argument("--algos", type=known([*RUNS]), default=[*RUNS], help=",".join(RUNS))
    parser.add_argument("--count", type=int, help="cases of each row at most, instead of its long form")
    parser.add_argument("--sabotage", choices=PROTECTIONS, help="switch this protection off: its rows must turn red")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def known(names: list[str]) -> Callable[[str], list[str]]:
    def names_of(text: str) -> list[str]:
        found = text.split(",")
        if unknown := [name for name in found if name not in names]:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: there are {', '.join(names)}")
        return found

    return names_of


if __name__ == "__main__":
    sys.exit(main())
