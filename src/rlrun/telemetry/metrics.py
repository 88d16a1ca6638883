"""Reads and writes metrics.jsonl: one JSON object per log row, each written in one call, so readers see whole rows."""

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple

from rlrun import files
from rlrun.errors import ConfigError, RunError
from rlrun.formats import history
from rlrun.formats.numbers import LAST_STEP, is_number, is_whole
from rlrun.snapshot.atomic import replace_file

Row = dict[str, Any]  # a log row: key -> int or float; always has "step", and "wall_s" if rlrun wrote it

GROUPS = ("step", "wall_s", "train", "eval", "loss", "custom", "time", "sys")  # of metric keys, in their order
LARGEST = 1e300  # a resume ignores rows with larger numbers, which are damaged


def last_step(total_steps: int, total_updates: int | None, latest: Mapping[str, float]) -> int:
    """Returns the step at which a run ends. A number of updates is converted with those of the latest row so far."""
    updates = latest.get("train/updates", 0)
    if total_updates is None or updates <= 0:
        return total_steps
    left = max(0, total_updates - updates) * latest["step"] / updates
    return max(1, math.ceil(min(total_steps, latest["step"] + left)))


class MetricKeys(NamedTuple):
    """Converts between the metric keys in a run's files and the current ones.

    A run always writes the keys of the format in which it began, so that no curve changes its name.
    """

    format: int
    algo: str  # the `algo.name` of the run

    def stored(self, row: Row) -> Row:
        """Returns a row with current keys renamed to the keys of the run's files."""
        return history.former_metrics(row, self.format, self.algo)

    def current(self, row: Row) -> Row:
        """Returns a row of the run's files with the current keys."""
        return history.renamed_metrics(row, self.format, self.algo)


class WrittenRows(NamedTuple):
    """Number and hash of the rows of a metrics file. Every snapshot records them."""

    rows: int
    sha256: str  # hash of the lines


class MetricsFile:
    """Appends rows to the file `path`. For a resume, keeps the rows up to `from_step` and lists them in `past`.

    written: what the snapshot recorded. If the kept rows differ from it, `fault` says how; otherwise `fault` is "".
    """

    def __init__(self, path: Path, from_step: int, written: WrittenRows | None = None):
        self.path = path
        self.past: list[Row] = []
        self.fault = ""
        self._rows = 0
        self._hash = hashlib.sha256()
        if from_step > 0:
            lines = []
            for line, row in _rows_until(path, from_step, written):
                lines.append(line)
                self.past.append(row)
            self._count(lines)
            replace_file(path, lines)
            self.fault = self._difference(written)
        self._file = files.open_to_append(path, from_start=from_step == 0)

    @property
    def written(self) -> WrittenRows:
        """Number and hash of the rows so far."""
        return WrittenRows(self._rows, self._hash.hexdigest())

    def append(self, row: Row) -> None:
        """Writes one line in one call, so that a reader never sees half a row. Raises RunError if that fails."""
        line = json.dumps(row, allow_nan=False).encode() + b"\n"
        size = os.fstat(self._file).st_size
        try:
            written = os.write(self._file, line)
        except OSError as error:
            raise RunError(f"{self.path}: cannot write metrics: {error.strerror}") from error
        if written < len(line):
            os.ftruncate(self._file, size)
            raise RunError(f"{self.path}: cannot write metrics: no space left")
        self._count([line])

    def sync(self) -> None:
        """Waits until every row is on disk."""
        os.fsync(self._file)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _count(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            self._rows += 1
            self._hash.update(line)

    def _difference(self, written: WrittenRows | None) -> str:
        if written is None or written == self.written:
            return ""
        if written.rows != self._rows:
            return f"{self.path.name} has {self._rows} of the {written.rows} rows that the snapshot recorded"
        before, now = written.sha256[:12], self.written.sha256[:12]
        return f"{self.path.name}: its rows have changed since the snapshot (SHA-256 {before} -> {now})"


def ordered(values: dict[str, Any]) -> Row:
    """Returns a row of plain numbers, sorted by the group of the key as in `GROUPS`, without infinity and NaN."""
    row = {}
    for key in sorted_keys(values):
        value = values[key]
        number: float
        if isinstance(value, Integral):
            number = int(value)
        else:
            number = float(value)
        if math.isfinite(number):
            row[key] = number
    return row


def sorted_keys(keys: Iterable[str]) -> list[str]:
    """Returns keys of log rows, sorted by their group as in `GROUPS`. Keys of one group keep their order."""
    return sorted(keys, key=_rank)


def _rank(key: str) -> int:
    """Returns the position of a key's group in `GROUPS`; unknown groups are last."""
    group = key.partition("/")[0]
    if group in GROUPS:
        return GROUPS.index(group)
    return len(GROUPS)


def read_rows(path: Path) -> list[Row]:
    """Returns all complete rows of a metrics file. Lines that are incomplete or not valid rows are skipped."""
    return [row for _, row in parsed(files.read_lines(path))]


def whole_rows(path: Path) -> Iterator[Row]:
    """Yields all complete rows of a metrics file. Raises ConfigError if a complete line is not a valid row."""
    for number, line in enumerate(files.read_lines(path), start=1):
        rows = [row for _, row in parsed([line])]
        if not rows and line.endswith(b"\n"):
            raise ConfigError(f"{path}: line {number} is not a log row")
        yield from rows


def parsed(lines: Iterable[bytes]) -> Iterator[tuple[bytes, Row]]:
    """Yields line and row of each complete and valid row."""
    for line in lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if line.endswith(b"\n") and isinstance(row, dict) and is_whole(row.get("step"), 0, LAST_STEP):
            yield line, row


def _rows_until(path: Path, step: int, written: WrittenRows | None) -> Iterator[tuple[bytes, Row]]:
    """Yields (line, row) for each valid row up to `step`. Reads only the first `written.rows` lines if it is given."""
    if not path.exists():
        return
    lines: Iterable[bytes] = files.read_lines(path)
    if written is not None:
        lines = islice(lines, written.rows)
    for line, row in parsed(lines):
        if row["step"] <= step and "wall_s" in row and all(map(_is_sound, row.values())):
            yield line, row


def _is_sound(value: object) -> bool:
    return is_number(value, -LARGEST, LARGEST)
