"""Measures functions in interleaved repeats, and records medians and ranges."""

import json
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypeVar

from rlrun.bench.probe import MachineProbe

T = TypeVar("T")


Figures = dict[str, float]  # measured values by unit


@dataclass(frozen=True)
class Record:
    """One measured figure. A results file holds records as JSON lines."""

    kind: str  # micro | end_to_end
    case: str
    library: str
    unit: str  # us | steps/s | steps/cpu-s | MiB
    median: float
    low: float
    high: float
    repeats: int
    versions: dict[str, str]
    probe: dict[str, float]  # speed of the machine after the measurement, see probe.py
    noisy: bool  # whether the speed of the machine changed, so that the figure must not be used
    began: str  # start time; equal for figures that were measured together, and only these may be compared

    def as_json(self) -> dict[str, object]:
        """Returns the record as a JSON object."""
        return asdict(self)


def summary(values: list[float]) -> dict[str, float | int]:
    """Returns median, range and count of values, by the field names of Record. Raises ValueError without values."""
    if not values:
        raise ValueError("nothing was measured")
    return {"median": statistics.median(values), "low": min(values), "high": max(values), "repeats": len(values)}


def record(
    kind: str,
    case: str,
    library: str,
    unit: str,
    values: list[float],
    versions: dict[str, str],
    probes: list[MachineProbe],
    began: str,
) -> Record:
    """Returns the record of repeated measurements. probes: of the machine, before and after."""
    if kind == "end_to_end":  # whole runs take turns, so a change of the machine's speed affects all of them
        noisy = MachineProbe.crowded(probes)
    else:
        noisy = MachineProbe.unsteady(probes)
    return Record(
        kind=kind, case=case, library=library, unit=unit, **summary(values), versions=versions,  # type: ignore[arg-type]
        probe=probes[-1].as_json(), began=began, noisy=noisy,
    )  # fmt: skip


def microseconds(work: Callable[[], object], seconds: float, clock: Callable[[], float] = time.process_time) -> float:
    """Returns the mean microseconds of a call, over as many calls as fit into `seconds`. clock: CPU time by default."""
    began = clock()
    work()
    count = max(1, int(seconds / max(clock() - began, 1e-6)))
    began = clock()
    for _ in range(count):
        work()
    return (clock() - began) / count * 1e6


def rates(work: Callable[[], object], seconds: float, steps: int) -> Figures:
    """Returns the steps per second of wall time and of CPU time, over as many calls as fit into `seconds`.

    steps: number of steps that one call takes.
    """
    call_s = microseconds(work, 0.0, time.perf_counter) / 1e6
    count = max(1, int(seconds / max(call_s, 1e-6)))
    wall_began = time.perf_counter()
    cpu_began = time.process_time()
    for _ in range(count):
        work()
    wall_s = time.perf_counter() - wall_began
    cpu_s = time.process_time() - cpu_began
    return {"steps/s": steps * count / max(wall_s, 1e-9), "steps/cpu-s": steps * count / max(cpu_s, 1e-9)}


def interleaved(works: Mapping[str, Callable[[], T]], repeats: int) -> dict[str, list[T]]:
    """Calls all works in turns and returns the results of each. The first round is dropped.

    Because the works take turns, a temporary slowdown of the machine affects all of them.
    """
    results: dict[str, list[T]] = {name: [] for name in works}
    for _ in range(1 + repeats):
        for name, work in works.items():
            results[name].append(work())
    return {name: values[1:] for name, values in results.items()}


def measure(
    kind: str, figures: Callable[[], Mapping[str, list[Figures]]], case: str, results: Path | None,
    library: str = "rlrun",
) -> None:  # fmt: skip
    """Calls `figures`, prints its records, and appends them to the file `results`.

    figures: returns lists of figures by name. For whole runs, `case` is given and the names are libraries. For pieces,
    `case` is "" and the names are cases, all of the same `library`.
    """
    began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    probes = [MachineProbe.take()]
    found = figures()
    probes.append(MachineProbe.take())
    installed = versions()
    records = []
    for name, rounds in found.items():
        record_case = case or name
        record_library = name if case else library
        for unit in rounds[0]:
            values = [figures_of_round[unit] for figures_of_round in rounds]
            records.append(record(kind, record_case, record_library, unit, values, installed, probes, began))
    for one in records:
        spread = f"({one.low:.1f} to {one.high:.1f})"
        if one.noisy:
            spread += "  NOISY: not a valid result"
        print(f"{one.case:45} {one.library:16} {one.median:10.1f} {one.unit:12} {spread}  {one.probe}", flush=True)
    if results:
        results.parent.mkdir(parents=True, exist_ok=True)
        with results.open("a") as file:
            file.writelines(json.dumps(one.as_json()) + "\n" for one in records)


def versions() -> dict[str, str]:
    """Returns the installed versions of the packages that affect measurements."""
    known = {}
    for name in ("rlrun", "torch", "gymnasium", "mujoco"):
        try:
            known[name] = version(name)
        except PackageNotFoundError:
            known[name] = "source"
    return known
