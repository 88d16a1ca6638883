"""docs/benchmarks.md from a results file. The latest steady record of each case and library counts."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HEAD = """\
# Benchmarks

Written by `./scripts/bench/run table` from measured records; not edited by hand. Micro figures are microseconds of CPU
time on one thread, end-to-end figures are environment steps per second of wall time beside other libraries on the same
machine, all interleaved: median (lowest to highest) of the repeats. `scripts/bench/README.md` says how to repeat them.
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
    micro = [record for record in records if record["kind"] == "micro"]
    if micro:
        parts.append("## Pieces\n\n| what | us |\n|---|---|\n")
        parts[-1] += "".join(f"| {record['case']} | {figure(record)} |\n" for record in micro)
    whole = [record for record in records if record["kind"] == "end_to_end" and record["unit"] == "steps/s"]
    if whole:
        peaks = {(r["case"], r["library"]): f"{r['median']:,.0f}" for r in records if r["unit"] == "MiB"}
        parts.append("## Whole runs\n\n| case | library | steps/s | times as fast as | MiB |\n|---|---|---|---|---|\n")
        for record in sorted(whole, key=lambda record: record["case"]):
            case, library = record["case"], record["library"]
            peers = [r for r in whole if r["case"] == case and not r["library"].startswith("rlrun")]
            ratios = [f"{r['library']} {record['median'] / r['median']:.2f}" for r in peers]
            said = ", ".join(ratios) if library.startswith("rlrun") else ""
            parts[-1] += f"| {case} | {library} | {figure(record)} | {said} | {peaks.get((case, library), '')} |\n"
    if records:
        probes = sorted({json.dumps(record["probe"]) for record in records})
        versions = sorted({f"{name} {number}" for record in records for name, number in record["versions"].items()})
        parts.append(f"## The machine\n\nVersions: {', '.join(versions)}.\n\n" + "".join(f"- {p}\n" for p in probes))
    return "\n".join(parts)


def write(results: Path, page: Path) -> None:
    goals = (Path(__file__).parent / "goals.md").read_text()
    page.write_text(text(latest(results.read_text().splitlines())) + "\n" + goals)
