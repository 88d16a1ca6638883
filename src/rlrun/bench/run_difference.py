"""The first difference between two finished runs, bit for bit: in the rows of metrics and in the last snapshot.

The earlier run may have been written by an older commit. Its names are mapped by `config/history.py`, those of the
latest format even where it says that it has this format, for its commit may lie between two renames.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from rlrun.config import history
from rlrun.config.stored import parse_config
from rlrun.rundir import METRICS
from rlrun.snapshot import manifest, tensors
from rlrun.snapshot.loaded import Snapshot
from rlrun.snapshot.store import Store
from rlrun.telemetry.metrics import MetricKeys, Row, read_rows

CLOCKS = ("wall_s", "time/", "sys/")  # beginnings of keys that differ from run to run
MISSING = object()


class Outcome(NamedTuple):
    """What a run came to, by today's names."""

    rows: list[Row]  # of metrics, without clocks
    state: dict[str, Any]  # path -> value of everything in its last snapshot


def outcome(run: Path) -> Outcome:
    """Read a run folder of any format."""
    snapshot = Store(run).load()
    algo = str(snapshot.header.get("algo"))
    latest = max(1, history.FORMAT - 1)
    keys = MetricKeys(min(metrics_format(snapshot), latest), algo)
    rows = [without_clocks(keys.current(row)) for row in read_rows(run / METRICS)]
    state = history.renamed_state(dict(snapshot.state), min(snapshot.format, latest), algo)
    facts, _ = manifest.verify(snapshot.path)
    return Outcome(rows, dict(leaves(state)) | facts.ring_hashes())


def metrics_format(snapshot: Snapshot) -> int:
    """The format of a run's metric keys, by the config that its snapshot holds; format 1 holds none."""
    text = snapshot.header.get("config")
    if not isinstance(text, str):
        return snapshot.format
    return parse_config(text, snapshot.path).metrics_format


def without_clocks(row: Row) -> Row:
    """What of a row of metrics is the same in every run with its seed."""
    return {key: value for key, value in row.items() if not key.startswith(CLOCKS)}


def run_difference(before: Path, now: Path) -> str:
    """The first difference in the rows and in the state of two run folders; "" if there is none."""
    old, new = outcome(before), outcome(now)
    return "; ".join(filter(None, [row_difference(old.rows, new.rows), state_difference(old.state, new.state)]))


def row_difference(before: list[Row], now: list[Row]) -> str:
    """The first row and key that differ; empty where none does."""
    for old, new in zip(before, now, strict=False):
        for key in dict.fromkeys([*old, *new]):
            if repr(old.get(key)) != repr(new.get(key)):
                return f"row of step {old['step']}: {key} {old.get(key, '-')} -> {new.get(key, '-')}"
    if len(before) != len(now):
        return f"{len(before)} -> {len(now)} rows"
    return ""


def state_difference(before: dict[str, Any], now: dict[str, Any]) -> str:
    """How many entries differ, and the first of them, of the agent if it has any; empty where none does."""
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
    """Whether an entry of a run's state is no part of its agent."""
    return not path.startswith("agent.")


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Paths and values of what dictionaries, lists and tuples hold, at any depth."""
    if isinstance(value, list | tuple):
        value = dict(enumerate(value))
    if not isinstance(value, dict) or not value:
        yield path, value
        return
    for name, item in value.items():
        yield from leaves(item, f"{path}.{name}".removeprefix("."))


def bits(value: Any) -> Any:
    """What is equal for two values with the same bits, and for no others."""
    if isinstance(value, Tensor):
        return tensors.dtype_name(value), tuple(value.shape), tensors.sha256(value)
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.str, value.shape, value.tobytes()
    return repr(value)
