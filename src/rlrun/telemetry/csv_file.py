"""Writes the rows of metrics.jsonl as a table."""

import csv
import errno
import io
import os
from collections.abc import Iterable, Sequence
from typing import Any

from rlrun import files
from rlrun.config.schema import config
from rlrun.registry import register
from rlrun.rundir import METRICS
from rlrun.snapshot.atomic import replace_text
from rlrun.telemetry.logger import Logger, Start
from rlrun.telemetry.metrics import Row, read_rows, sorted_keys


@register("logger", "csv")
class CSV(Logger):
    """Writes RUN/metrics.csv, which has a column for each key. The field is empty if a row lacks the key.

    If a row has a new key, or the file was deleted, it is written again from metrics.jsonl, so it always has a header
    with all columns.
    """

    local = True

    @config
    class Config:
        pass

    def open(self, start: Start) -> None:
        self._source = start.run / METRICS
        self._path = start.run / "metrics.csv"
        self._file = -1
        self._write_all(start.rows)

    def row(self, row: Row) -> None:
        is_deleted = os.fstat(self._file).st_nlink == 0
        if is_deleted or not row.keys() <= {*self._columns}:
            self._write_all(read_rows(self._source))
        else:
            line = _line(self._columns, row).encode()
            if os.write(self._file, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))

    def close(self, summary: dict[str, Any]) -> None:
        self.abandon()

    def abandon(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _write_all(self, rows: Sequence[Row]) -> None:
        """Replaces the file atomically, so that a reader never sees a part of it."""
        self.abandon()
        keys = dict.fromkeys(key for row in rows for key in row)
        self._columns = sorted_keys(keys)
        header = dict(zip(self._columns, self._columns, strict=True))
        lines = [_line(self._columns, row) for row in (header, *rows)]
        replace_text(self._path, "".join(lines))
        self._file = files.open_to_append(self._path)


def _line(columns: Iterable[str], row: dict[str, Any]) -> str:
    """Returns a row as a line of the table. Floats are written such that the same number is read back."""
    text = io.StringIO()
    csv.DictWriter(text, [*columns], lineterminator="\n").writerow(row)
    return text.getvalue()
