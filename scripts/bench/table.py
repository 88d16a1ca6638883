"""docs/benchmarks.md from a results file. The latest steady record of each case and library counts."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.cases import CASES
from bench.compare import PEERS

HEAD = """\
# Benchmarks

This page is written by `./scripts/bench/run table` from measured records and not edited by hand. Micro figures are
microseconds of CPU time on one thread. End-to-end figures are environment steps per second of wall time, with all
libraries on the same machine in turns of a second each: median (lowest to highest) of the repeats. "updates/step" is
counted: how often a library's busiest optimiser stepped per measured environment step. "start s" is the time before
these steps: imports, warm-up, first updates, compiling. `scripts/bench/README.md` has the commands.
"""


def latest(lines: Iterable[str]) -> list[dict[str, Any]]:
    records: dict[tuple[str, ...], dict[str, Any]] = {}
    for line in lines:
        record = json.loads(line)
        if not record["noisy"]:
            records[record["kind"], record["case"], record["library"], record["unit"]] = record
    return list(records.values())


def figure(record: dict[str, Any]) -> str:
    return f"{record['median']:,.1f} ({record['low']:,.1f} to {record['high']:,.1f})"


def text(records: list[dict[str, Any]]) -> str:
    """The page."""
    parts = [HEAD]
    if micro := [record for record in records if record["kind"] == "micro"]:
        parts.append(pieces(micro))
    if whole := [record for record in records if record["kind"] == "end_to_end"]:
        parts.append(runs(whole))
    if records:
        probes = sorted({json.dumps(record["probe"]) for record in records})
        versions = sorted({f"{name} {number}" for record in records for name, number in record["versions"].items()})
        pinned = sorted({word for words in PEERS.values() for word in words})
        parts.append(f"## The machine\n\nVersions: {', '.join(versions)}. Peers: {', '.join(pinned)}.\n\n")
        parts[-1] += "".join(f"- {probe}\n" for probe in probes)
    return "\n".join(parts)


def pieces(micro: list[dict[str, Any]]) -> str:
    peers = {record["case"]: record for record in micro if record["library"] != "rlrun"}
    page = "## Pieces\n\n| what | us | SB3 | times as fast |\n|---|---|---|---|\n"
    for record in micro:
        if record["library"] == "rlrun":
            peer = peers.get(record["case"])
            beside = f"{figure(peer)} | {peer['median'] / record['median']:.1f}" if peer else " | "
            page += f"| {record['case']} | {figure(record)} | {beside} |\n"
    return page


def runs(whole: list[dict[str, Any]]) -> str:
    """One row for every case and library; those that nobody measured say so."""
    speeds = {(r["case"], r["library"]): r for r in whole if r["unit"] == "steps/s"}
    beside = {(r["case"], r["library"], r["unit"]): r["median"] for r in whole}
    rows = [(name, library) for name, case in CASES.items() for library in case.libraries]
    columns = {"updates/step": ".3f", "start s": ".0f", "MiB": ".0f"}
    page = f"## Whole runs\n\n| case | library | steps/s | times as fast as | {' | '.join(columns)} |\n"
    page += "|---" * (4 + len(columns)) + "|\n"
    for case, library in [*rows, *(row for row in speeds if row not in rows)]:
        record = speeds.get((case, library))
        said = ""
        if record and library.startswith("rlrun"):
            # a ratio is told of what was measured in one run
            beside_it = [one for one in speeds.values() if one["case"] == case and one["began"] == record["began"]]
            peers = [(one["library"], one) for one in beside_it if not one["library"].startswith("rlrun")]
            said = ", ".join(f"{name} {record['median'] / r['median']:.2f}" for name, r in peers)
        speed = figure(record) if record else "not measured"
        told = [(beside.get((case, library, unit)), how) for unit, how in columns.items()]
        rest = " | ".join("" if value is None else f"{value:{how}}" for value, how in told)
        page += f"| {case} | {library} | {speed} | {said} | {rest} |\n"
    return page


def write(results: Path, page: Path) -> None:
    goals = (Path(__file__).parent / "goals.md").read_text()
    page.write_text(text(latest(results.read_text().splitlines())) + "\n" + goals)
