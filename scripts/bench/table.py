"""Writes docs/benchmarks.md from a results file, with the latest record of each case and library that is not noisy."""

import json
from collections.abc import Iterable
from itertools import chain
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
RATES = {"steps/s": "steps per second", "steps/cpu-s": "steps per second of CPU time"}  # of simulators, by unit
SIMULATED = """\
Steps of environments that are stepped all at once, on one thread, without an agent (`rlrun bench simulators`). A step
in torch includes all that a run needs from it: tensors, episode returns, checks for NaN."""


def latest(lines: Iterable[str]) -> list[dict[str, Any]]:
    """Returns the last record of each case, library and unit that is not noisy."""
    records: dict[tuple[str, ...], dict[str, Any]] = {}
    for line in lines:
        record = json.loads(line)
        if not record["noisy"]:
            records[record["kind"], record["case"], record["library"], record["unit"]] = record
    return list(records.values())


def figure(record: dict[str, Any], form: str = ",.1f") -> str:
    """Returns median and range of a record as text."""
    return f"{record['median']:{form}} ({record['low']:{form}} to {record['high']:{form}})"


def text(records: list[dict[str, Any]]) -> str:
    """Returns the text of the page, without the goals."""
    parts = [HEAD]
    micro = [record for record in records if record["kind"] == "micro"]
    if calls := [record for record in micro if record["unit"] == "us"]:
        parts.append(pieces(calls))
    if rates := [record for record in micro if record["unit"] in RATES]:
        parts.append(simulators(rates))
    if whole := [record for record in records if record["kind"] == "end_to_end"]:
        parts.append(runs(whole))
    if records:
        probes = sorted({json.dumps(record["probe"]) for record in records})
        versions = set()
        for record in records:
            versions.update(map(" ".join, record["versions"].items()))
        pinned = set(chain.from_iterable(PEERS.values()))
        page = f"## The machine\n\nVersions: {', '.join(sorted(versions))}. Peers: {', '.join(sorted(pinned))}.\n\n"
        for probe in probes:
            page += f"- {probe}\n"
        parts.append(page)
    return "\n".join(parts)


def pieces(micro: list[dict[str, Any]]) -> str:
    """Returns the table of rlrun's pieces, with the same pieces of SB3."""
    peers = {record["case"]: record for record in micro if record["library"] != "rlrun"}
    page = "## Pieces\n\n| what | us | SB3 | times as fast |\n|---|---|---|---|\n"
    for record in micro:
        if record["library"] == "rlrun":
            beside = " | "
            if peer := peers.get(record["case"]):
                beside = f"{figure(peer)} | {peer['median'] / record['median']:.1f}"
            page += f"| {record['case']} | {figure(record)} | {beside} |\n"
    return page


def simulators(rates: list[dict[str, Any]]) -> str:
    """Returns the table of simulators and Gymnasium's vector envs."""
    page = f"## Simulators\n\n{SIMULATED}\n\n| what | {' | '.join(RATES.values())} |\n"
    page += "|---" * (1 + len(RATES)) + "|\n"
    cells = {(record["case"], record["unit"]): figure(record, ",.0f") for record in rates}
    for case in dict.fromkeys(record["case"] for record in rates):
        row = [case, *(cells.get((case, unit), "") for unit in RATES)]
        page += f"| {' | '.join(row)} |\n"
    return page


def speeds(records: list[dict[str, Any]]) -> list[str]:
    """Returns the rows of the table in docs/environments.md: millions of steps per second of simulators, by clock."""
    rates = [record for record in records if record["kind"] == "micro" and record["unit"] in RATES]
    medians = {(record["case"], record["unit"]): record["median"] for record in rates}
    rows = []
    for env in dict.fromkeys(case.split()[1].rstrip(",") for case, _ in medians):
        for unit, clock in (("steps/s", "wall time"), ("steps/cpu-s", "CPU time")):
            cells = [f"{env}, {clock}"]
            for library in ("torch", "SyncVectorEnv", "CartPoleVectorEnv"):
                median = medians.get((f"4096 {env}, {library}", unit))
                cells.append("" if median is None else f"{median / 1e6:.2g}")
            rows.append(f"| {' | '.join(cells)} |")
    return rows


def runs(whole: list[dict[str, Any]]) -> str:
    """Returns the table of whole runs, with a row for every case and library, even if it was not measured."""
    speeds = {(r["case"], r["library"]): r for r in whole if r["unit"] == "steps/s"}
    beside = {(r["case"], r["library"], r["unit"]): r["median"] for r in whole}
    rows = []
    for name, case in CASES.items():
        rows += [(name, library) for library in case.libraries]
    rows += [row for row in speeds if row not in rows]
    columns = {"updates/step": ".3f", "start s": ".0f", "MiB": ".0f"}
    page = f"## Whole runs\n\n| case | library | steps/s | times as fast as | {' | '.join(columns)} |\n"
    page += "|---" * (4 + len(columns)) + "|\n"
    for name, library in rows:
        record = speeds.get((name, library))
        speed = "not measured"
        if record:
            speed = figure(record)
        cells = []
        for unit, form in columns.items():
            value = beside.get((name, library, unit))
            cells.append("" if value is None else f"{value:{form}}")
        ratios = ratios_to_peers(record, speeds.values())
        page += f"| {name} | {library} | {speed} | {ratios} | {' | '.join(cells)} |\n"
    return page


def ratios_to_peers(record: dict[str, Any] | None, speeds: Iterable[dict[str, Any]]) -> str:
    """Returns a text with the speed of a record of rlrun relative to each library measured at the same time.

    Returns "" for records of other libraries.
    """
    if record is None or not record["library"].startswith("rlrun"):
        return ""
    ratios = []
    for peer in speeds:
        together = (peer["case"], peer["began"]) == (record["case"], record["began"])
        if together and not peer["library"].startswith("rlrun"):
            ratios.append(f"{peer['library']} {record['median'] / peer['median']:.2f}")
    return ", ".join(ratios)


def write(results: Path, page: Path) -> None:
    """Writes the page from a results file and goals.md."""
    goals = (Path(__file__).parent / "goals.md").read_text()
    page.write_text(text(latest(results.read_text().splitlines())) + "\n" + goals)
