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
    records: dict[tuple[str, str, str], dict[str, Any]] = {}
    for line in lines:
        record = json.loads(line)
        if not record["noisy"]:
            records[record["kind"], record["case"], record["library"]] = record
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
    whole = [record for record in records if record["kind"] == "end_to_end"]
    if whole:
        parts.append("## Whole runs\n\n| case | library | steps/s | rlrun is faster by |\n|---|---|---|---|\n")
        own = {record["case"]: record["median"] for record in whole if record["library"] == "rlrun"}
        for record in whole:
            ratio = own.get(record["case"], 0.0) / record["median"]
            said = f"{ratio:.2f}x" if ratio and record["library"] != "rlrun" else ""
            parts[-1] += f"| {record['case']} | {record['library']} | {figure(record)} | {said} |\n"
    if records:
        probes = sorted({json.dumps(record["probe"]) for record in records})
        versions = sorted({f"{name} {number}" for record in records for name, number in record["versions"].items()})
        parts.append(f"## The machine\n\nVersions: {', '.join(versions)}.\n\n" + "".join(f"- {p}\n" for p in probes))
    return "\n".join(parts)


def write(results: Path, page: Path) -> None:
    page.write_text(text(latest(results.read_text().splitlines())))
