"""The command line of the benchmarks."""

import argparse
from pathlib import Path

from bench import compare, table
from bench.cases import CASES
from rlrun.bench import pieces
from rlrun.bench.measure import measure

ROOT = Path(__file__).parents[2]
LIBRARIES = "rlrun,rlrun-compiled,sb3,sbx"


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--results", type=Path, default=ROOT / "runs" / "bench.jsonl", help="records are added here")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cache", type=Path, default=compare.cache(), help="where the peers live; RLRUN_BENCH_CACHE")
    commands = parser.add_subparsers(dest="command", required=True)
    peers = commands.add_parser("setup", help="install the peers")
    peers.add_argument("names", nargs="*", choices=[*compare.PEERS, []])
    whole = commands.add_parser("compare", help="whole runs beside the peers")
    whole.add_argument("cases", nargs="*", help=", ".join(CASES))
    whole.add_argument("--libraries", default=LIBRARIES, help="NAME@2: on two threads")
    commands.add_parser("table", help="docs/benchmarks.md from the records")
    commands.add_parser("all", help="the pieces, whole runs of every case, and the table")
    return parser.parse_args()


def compared(given: argparse.Namespace, cases: list[str], libraries: str) -> None:
    for name in cases or CASES:
        works = compare.timers(name, libraries.split(","), given.cache)
        measure("end_to_end", works, name, given.repeats, given.results)


def main() -> None:
    given = options()
    page = ROOT / "docs" / "benchmarks.md"
    match given.command:
        case "setup":
            compare.setup(given.names, given.cache)
        case "compare":
            compared(given, given.cases, given.libraries)
        case "table":
            table.write(given.results, page)
        case "all":
            for part in pieces.PARTS:
                measure("micro", pieces.timers(part, [], 0.2), "", given.repeats, given.results)
            compared(given, [], LIBRARIES)
            table.write(given.results, page)


main()
