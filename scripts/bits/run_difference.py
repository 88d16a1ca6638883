"""Finds the first difference, bit for bit, between two finished runs: in their log rows and in their last snapshots.

The earlier run may have been written by an older commit, so `formats/history.py` maps its names. The renames of the
latest format are applied even if the run has that format, because its commit may precede some of these renames.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from rlrun.config.stored import parse_config
from rlrun.formats import history
from rlrun.rundir import METRICS
from rlrun.snapshot import manifest, tensors
from rlrun.snapshot.store import Store
from rlrun.telemetry.metrics import MetricKeys, Row, read_rows

CLOCKS = ("wall_s", "time/", "sys/")  # prefixes of metric keys that differ from run to run
LATER = ("train/updates",)  # metrics that earlier versions do not write
MISSING = object()


class Outcome(NamedTuple):
    """The results of a run, with current names."""

    rows: list[Row]  # log rows without metrics of time and memory, and without `LATER`
    state: dict[str, Any]  # path -> value of everything in the last snapshot


def outcome(run: Path) -> Outcome:
    """Reads the results of a run folder."""
    snapshot = Store(run).load()
    algo = str(snapshot.header.get("algo"))
    latest = max(history.FIRST, history.FORMAT - 1)
    written = parse_config(snapshot.header["config"], snapshot.path).metrics_format
    keys = MetricKeys(min(written, latest), algo)
    rows = [comparable(keys.current(row)) for row in read_rows(run / METRICS)]
    state = history.renamed_state(dict(snapshot.state), latest, algo)  # `load` applied the renames of its format
    facts, _ = manifest.verify(snapshot.path)
    return Outcome(rows, dict(leaves(state)) | facts.ring_hashes())


def comparable(row: Row) -> Row:
    """Returns a log row without metrics of time and memory, and without those that the earlier run may lack."""
    return {key: value for key, value in row.items() if not key.startswith(CLOCKS) and key not in LATER}


def run_difference(before: Path, now: Path) -> str:
    """Returns the first differences in log rows and in state between two run folders, or "" if there are none."""
    old, new = outcome(before), outcome(now)
    in_rows = row_difference(old.rows, new.rows)
    return "; ".join(filter(None, [in_rows, state_difference(old.state, new.state)]))


def row_difference(before: list[Row], now: list[Row]) -> str:
    """Returns a text about the first row and key that differ, or "" if all rows are equal."""
    for old, new in zip(before, now, strict=False):
        for key in dict.fromkeys([*old, *new]):
            if repr(old.get(key)) != repr(new.get(key)):
                return f"row of step {old['step']}: {key} {old.get(key, '-')} -> {new.get(key, '-')}"
    if len(before) != len(now):
        return f"{len(before)} -> {len(now)} rows"
    return ""


def state_difference(before: dict[str, Any], now: dict[str, Any]) -> str:
    """Returns a text with the number of differing entries and the first of them, or "" if all are equal.

    Entries of the agent come first.
    """
    paths = sorted({**before, **now}, key=is_outside_agent)
    differing = [path for path in paths if bits(before.get(path, MISSING)) != bits(now.get(path, MISSING))]
    if not differing:
        return ""
    first = differing[0]
    where = ""
    if first not in now:
        where = " (gone)"
    if first not in before:
        where = " (new)"
    return f"state: {first}{where}, {len(differing)} of {len(paths)} entries differ"


def is_outside_agent(path: str) -> bool:
    """Returns whether an entry of a run's state does not belong to its agent."""
    return not path.startswith("agent.")


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields path and value of every entry in dicts, lists and tuples, at any depth."""
    if isinstance(value, list | tuple):
        value = dict(enumerate(value))
    if not isinstance(value, dict) or not value:
        yield path, value
        return
    for name, item in value.items():
        yield from leaves(item, f"{path}.{name}".removeprefix("."))


def bits(value: Any) -> Any:
    """Returns a value that is equal for two arguments if and only if they have the same bits."""
    if isinstance(value, Tensor):
        return tensors.dtype_name(value), tuple(value.shape), tensors.sha256(value)
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.str, value.shape, value.tobytes()
    return repr(value)
