"""The command line of the benchmarks."""

import argparse
import json
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bench import compare, micro, table
from bench.cases import CASES
from bench.measure import Figures, interleaved, record
from bench.probe import Probe

ROOT = Path(__file__).parents[2]


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--results", type=Path, default=ROOT / "runs" / "bench.jsonl", help="records are added here")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cache", type=Path, default=compare.cache(), help="where the peers live; RLRUN_BENCH_CACHE")
    commands = parser.add_subparsers(dest="command", required=True)
    pieces = commands.add_parser("micro", help="pieces of rlrun alone")
    pieces.add_argument("part", nargs="?", choices=micro.PARTS, help="default: all")
    pieces.add_argument("names", nargs="*", help="of algorithms, for update")
    pieces.add_argument("--seconds", type=float, default=0.2, help="per repeat of a case")
    peers = commands.add_parser("setup", help="install the peers")
    peers.add_argument("names", nargs="*", choices=[*compare.PEERS, []])
    whole = commands.add_parser("compare", help="whole runs beside the peers")
    whole.add_argument("cases", nargs="*", help=", ".join(CASES))
    whole.add_argument("--libraries", default="rlrun,rlrun-compiled,sb3,sbx", help="NAME@2: on two threads")
    commands.add_parser("table", help="docs/benchmarks.md from the records")
    return parser.parse_args()


def measure(given: argparse.Namespace, kind: str, works: dict[str, Callable[[], Figures]], case: str) -> None:
    """Measure, print and keep. `case`: of whole runs, whose works are libraries; pieces are cases themselves."""
    probes = [Probe.take()]
    found = interleaved(works, given.repeats)
    probes.append(Probe.take())
    given.results.parent.mkdir(parents=True, exist_ok=True)
    with given.results.open("a") as file:
        for name, rounds in found.items():
            what = (case, name) if case else (name, "rlrun")
            for unit in rounds[0]:
                made = record(kind, *what, unit, [figures[unit] for figures in rounds], versions(), probes)
                spread = f"({made.low:.1f} to {made.high:.1f})"
                print(f"{made.case:45} {made.library:16} {made.median:10.1f} {unit:12} {spread}"
                      f"{'  NOISY: no result' if made.noisy else ''}  {made.probe}", flush=True)  # fmt: skip
                file.write(json.dumps(made.as_json()) + "\n")


def versions() -> dict[str, str]:
    known = {}
    for name in ("rlrun", "torch", "gymnasium", "mujoco"):
        try:
            known[name] = version(name)
        except PackageNotFoundError:
            known[name] = "source"
    return known


def main() -> None:
    given = options()
    match given.command:
        case "micro":
            for part in [given.part] if given.part else micro.PARTS:
                measure(given, "micro", micro.timers(part, given.names, given.seconds), "")
        case "setup":
            compare.setup(given.names, given.cache)
        case "compare":
            for name in given.cases or CASES:
                works = compare.timers(name, given.libraries.split(","), given.cache)
                measure(given, "end_to_end", works, name)
        case "table":
            table.write(given.results, ROOT / "docs" / "benchmarks.md")


main()
