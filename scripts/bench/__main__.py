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
    """Returns the parsed command line."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument(
        "--results", type=Path, default=ROOT / "docs" / "benchmarks.jsonl", help="file to which records are appended"
    )
    parser.add_argument("--repeats", type=int, default=5, help="repeats per piece, intervals per whole run")
    parser.add_argument("--cache", type=Path, default=compare.cache(), help="the peers' folder; also RLRUN_BENCH_CACHE")
    commands = parser.add_subparsers(dest="command", required=True)
    peers = commands.add_parser("setup", help="install the peers")
    peers.add_argument("names", nargs="*", choices=[*compare.PEERS, []])
    whole = commands.add_parser("compare", help="measure whole runs of rlrun and the peers")
    whole.add_argument("cases", nargs="*", choices=[*CASES, "drawn", []], help="drawn: SAC with random sizes")
    whole.add_argument("--seed", type=int, default=0, help="seed of the random sizes")
    whole.add_argument("--libraries", default="", help="instead of the case's; NAME@2: on two threads")
    commands.add_parser("pieces", help="measure rlrun's pieces, and the same pieces of SB3 if it has them")
    commands.add_parser("table", help="write docs/benchmarks.md from the records")
    commands.add_parser("all", help="measure pieces and whole runs of every case, and write the table")
    return parser.parse_args()


def compared(given: argparse.Namespace, names: list[str], libraries: str = "", seed: int = 0) -> None:
    """Measures whole runs of rlrun and other libraries in the named cases, or in all cases."""
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
    """Measures rlrun's pieces, and those of SB3."""
    for part in pieces.PARTS:
        works = pieces.timers(part, [], 0.2)
        measure("micro", partial(interleaved, works, given.repeats), "", given.results)
    measure("micro", partial(interleaved, compare.pieces(given.cache), given.repeats), "", given.results, library="sb3")


def main() -> None:
    """Runs one command."""
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
