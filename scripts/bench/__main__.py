"""The command line of the benchmarks."""

import argparse
from functools import partial
from pathlib import Path

from bench import compare, table
from bench.cases import CASES, drawn
from rlrun.bench import pieces
from rlrun.bench.measure import interleaved, measure

ROOT = Path(__file__).parents[2]


def options() -> argparse.Namespace:
    """The command line, parsed."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument(
        "--results", type=Path, default=ROOT / "docs" / "benchmarks.jsonl", help="records are added here"
    )
    parser.add_argument("--repeats", type=int, default=5, help="of pieces, and stretches of whole runs")
    parser.add_argument("--cache", type=Path, default=compare.cache(), help="where the peers live; RLRUN_BENCH_CACHE")
    commands = parser.add_subparsers(dest="command", required=True)
    peers = commands.add_parser("setup", help="install the peers")
    peers.add_argument("names", nargs="*", choices=[*compare.PEERS, []])
    whole = commands.add_parser("compare", help="whole runs beside the peers")
    whole.add_argument("cases", nargs="*", choices=[*CASES, "drawn", []], help="drawn: SAC with sizes drawn anew")
    whole.add_argument("--seed", type=int, default=0, help="of what is drawn")
    whole.add_argument("--libraries", default="", help="instead of the case's own; NAME@2: on two threads")
    commands.add_parser("pieces", help="rlrun's pieces, and SB3's where it has the same")
    commands.add_parser("table", help="docs/benchmarks.md from the records")
    commands.add_parser("all", help="the pieces, whole runs of every case, and the table")
    return parser.parse_args()


def compared(given: argparse.Namespace, names: list[str], libraries: str = "", seed: int = 0) -> None:
    """Measure whole runs of cases, or of all of them, beside other libraries."""
    for name in names or CASES:
        if name == "drawn":
            name, case = drawn(seed)
        else:
            case = CASES[name]
        print(name, flush=True)
        beside = case.libraries
        if libraries:
            beside = tuple(libraries.split(","))
        measure("end_to_end", partial(compare.race, case, beside, given.cache, given.repeats), name, given.results)


def pieces_measured(given: argparse.Namespace) -> None:
    """Measure rlrun's pieces, and SB3's."""
    for part in pieces.PARTS:
        works = pieces.timers(part, [], 0.2)
        measure("micro", partial(interleaved, works, given.repeats), "", given.results)
    measure("micro", partial(interleaved, compare.pieces(given.cache), given.repeats), "", given.results, library="sb3")


def main() -> None:
    """Run one command."""
    given = options()
    page = ROOT / "docs" / "benchmarks.md"
    match given.command:
        case "setup":
            compare.setup(given.names, given.cache)
        case "compare":
            compared(given, given.cases, given.libraries, given.seed)
        case "pieces":
            pieces_measured(given)
        case "table":
            table.write(given.results, page)
        case "all":
            compared(given, [])
            pieces_measured(given)
            table.write(given.results, page)


main()
