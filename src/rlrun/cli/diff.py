"""Implements `rlrun diff`, which prints the differences between two runs: configs, software, hardware and results."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlrun.cli import settings
from rlrun.cli.columns import print_columns
from rlrun.config.resumable import differences
from rlrun.errors import ConfigError, printable

if TYPE_CHECKING:
    from rlrun.report.runs import StoredRun

USAGE = "rlrun diff RUN1 RUN2"
HELP = f"""\
usage: {USAGE}

Prints every key of config.yaml, meta.json and summary.json that differs between two runs, with both values, and the
first step at which their metrics differ. Metrics of time and memory are not compared."""

CLOCKS = ("wall_s", "time/", "sys/")


def diff(words: Sequence[str]) -> int:
    """Runs the command. Returns the exit code."""
    if "--help" in words or "-h" in words:
        print(HELP)
        return 0
    places, _ = settings.read(words, {})
    if len(places) != 2:
        raise ConfigError(f"two runs are needed; usage: {USAGE}")
    from rlrun.config.stored import not_a_run
    from rlrun.report.runs import read

    runs = []
    for place in map(Path, places):
        if not (place / "config.yaml").is_file():
            raise ConfigError(f"{place}: {not_a_run(place)}")
        found, skipped = read([place])
        if skipped:
            raise ConfigError(f"{place}: {skipped[0].reason}")
        runs += found
    one, other = runs
    rows = [*_differences("", one.config, other.config)]
    rows += _differences("meta: ", _lasting(one.meta), _lasting(other.meta))
    rows += _differences("summary: ", one.summary, other.summary)
    if rows:
        print_columns([("key", places[0], places[1]), *rows])
    print(printable(_metrics(one, other)))
    return 0


def _differences(prefix: str, one: dict[str, Any], other: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    for key, first, second in differences(one, other):
        yield prefix + key, first, second


def _lasting(meta: dict[str, Any]) -> dict[str, Any]:
    """Returns meta.json without the entries that differ each time a run starts."""
    return {key: value for key, value in meta.items() if key not in ("pid", "resumed")}


def _metrics(one: "StoredRun", other: "StoredRun") -> str:
    """Returns a line about the first step at which the metrics differ."""
    first, second = _by_step(one), _by_step(other)
    shared = sorted(first.keys() & second.keys())
    if not shared:
        return "metrics: no step in common"
    for step in shared:
        row = first[step]
        other_row = second[step]
        keys = [key for key in {**row, **other_row} if row.get(key) != other_row.get(key)]
        if keys:
            return f"metrics: differ from step {step:,} on ({', '.join(keys[:3])}{', ...' * (len(keys) > 3)})"
    return f"metrics: equal at all {len(shared)} shared steps, to {shared[-1]:,}"


def _by_step(run: "StoredRun") -> dict[int, dict[str, Any]]:
    """Returns the log rows of a run by step, without metrics of time and memory."""
    return {row["step"]: _timeless(row) for row in run.rows}


def _timeless(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if not key.startswith(CLOCKS)}
