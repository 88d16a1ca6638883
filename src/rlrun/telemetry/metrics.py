"""metrics.jsonl, the record of a run: one JSON object per log row, written whole, readable while it grows."""

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator
from itertools import islice
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple

from rlrun import files
from rlrun.config import history
from rlrun.errors import RunError
from rlrun.snapshot.atomic import replace_file

Row = dict[str, Any]  # key -> int or float; always has "step" and "wall_s"

GROUPS = ("step", "wall_s", "train", "eval", "loss", "time", "sys")


LARGEST = 1e300  # larger numbers are damage


class MetricKeys(NamedTuple):
    """The metric keys of one run. It writes those of the format it began with, so that no curve changes its name."""

    format: int
    algo: str  # the `algo.name` of the run

    def stored(self, row: Row) -> Row:
        """A row with today's keys, by the keys of the run's files."""
        return history.former_metrics(row, self.format, self.algo)

    def current(self, row: Row) -> Row:
        """A row of the run's files, by today's keys."""
        return history.renamed_metrics(row, self.format, self.algo)


class Written(NamedTuple):
    """The rows of a metrics file at one moment; a snapshot records it."""

    rows: int
    sha256: str  # of their lines


class MetricsFile:
    """Appends rows to `path`. A resumed run keeps the rows up to `from_step`, also in `past`.

    `written` is what the snapshot recorded; `fault` says how the file differs from that, "" if it does not.
    """

    def __init__(self, path: Path, from_step: int, written: Written | None = None):
        self.path = path
        self.past: list[Row] = []
        self.fault = ""
        self._rows, self._hash = 0, hashlib.sha256()
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
    def written(self) -> Written:
        """The rows so far."""
        return Written(self._rows, self._hash.hexdigest())

    def append(self, row: Row) -> None:
        """Write one line in one call, so that a reader never sees half a row. Raises RunError on a full disk."""
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
        """Return once every row is on the disk."""
        os.fsync(self._file)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _count(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            self._rows += 1
            self._hash.update(line)

    def _difference(self, written: Written | None) -> str:
        if written is None or written == self.written:
            return ""
        if written.rows != self._rows:
            return f"{self.path.name} has {self._rows} of the {written.rows} rows that were written by then"
        before, now = written.sha256[:12], self.written.sha256[:12]
        return f"{self.path.name}: its rows are not those that were written (SHA-256 {before} -> {now})"


def ordered(values: dict[str, Any]) -> Row:
    """Values as plain numbers, with the groups of keys in the order of `GROUPS`. Numbers that are not finite are left
    out."""
    row = {}
    for key in sorted(values, key=_rank):
        value = values[key]
        number = int(value) if isinstance(value, Integral) else float(value)
        if math.isfinite(number):
            row[key] = number
    return row


def _rank(key: str) -> int:
    """The place of a key's group; unknown groups are last."""
    group = key.partition("/")[0]
    if group in GROUPS:
        return GROUPS.index(group)
    return len(GROUPS)


def read_rows(path: Path) -> list[Row]:
    """All whole rows of a metrics file; a torn line is passed over."""
    return [row for _, row in _parsed(files.read_lines(path))]


def _parsed(lines: Iterable[bytes]) -> Iterator[tuple[bytes, Row]]:
    for line in lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if line.endswith(b"\n") and isinstance(row, dict) and is_number(row.get("step")):
            yield line, row


def is_number(value: Any) -> bool:
    """Whether a value is a number, and not a truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _rows_until(path: Path, step: int, written: Written | None) -> Iterator[tuple[bytes, Row]]:
    """Whole rows of numbers up to `step`, among as many lines as the snapshot recorded; with their lines."""
    if not path.exists():
        return
    lines: Iterable[bytes] = files.read_lines(path)
    if written is not None:
        lines = islice(lines, written.rows)
    for line, row in _parsed(lines):
        if row["step"] <= step and "wall_s" in row and all(map(_is_sound, row.values())):
            yield line, row


def _is_sound(value: Any) -> bool:
    return is_number(value) and -LARGEST < value < LARGEST
