"""Loggers that write the rows of metrics.jsonl to a file of the run: a table, or a text to read."""

import csv
import errno
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, ClassVar

from pydantic import Field

from rlrun import files
from rlrun.rundir import METRICS
from rlrun.settings import PositiveInt, config, register
from rlrun.snapshot.atomic import replace_text
from rlrun.telemetry.formatting import number
from rlrun.telemetry.logger import Logger, Start
from rlrun.telemetry.metrics import Row, read_rows, sorted_keys

Digits = Annotated[PositiveInt, Field(le=17)]  # 17 distinguish all floats


class RowFile(Logger):
    """Base class: writes a text for each row. If the file was deleted, it is written again from metrics.jsonl."""

    local = True
    file_name: ClassVar[str]

    def text(self, row: Row) -> str:
        """Returns the text of a row."""
        raise NotImplementedError

    def begin(self, rows: Sequence[Row]) -> str:
        """Returns the head of a file with these rows."""
        return ""

    def fits(self, row: Row) -> bool:
        """Returns whether the row can be appended. If not, the whole file is written again."""
        return True

    def open(self, start: Start) -> None:
        self._source = start.run / METRICS
        self._path = start.run / self.file_name
        self._file = -1
        self._write_all(start.rows)

    def row(self, row: Row) -> None:
        is_deleted = os.fstat(self._file).st_nlink == 0
        if is_deleted or not self.fits(row):
            self._write_all(read_rows(self._source))
            return
        text = self.text(row).encode()
        if os.write(self._file, text) < len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))

    def close(self, summary: dict[str, object]) -> None:
        self.abandon()

    def abandon(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _write_all(self, rows: Sequence[Row]) -> None:
        """Replaces the file atomically, so that a reader never sees a part of it."""
        self.abandon()
        texts = [self.begin(rows), *map(self.text, rows)]
        replace_text(self._path, "".join(texts))
        self._file = files.open_to_append(self._path)


@register("logger", "csv")
class CSV(RowFile):
    """Writes RUN/metrics.csv, which has a column for each key. The field is empty if a row lacks the key.

    If a row has a new key, the file is written again, so it always has a header with all columns.
    """

    file_name = "metrics.csv"

    @config
    class Config:
        digits: Digits | None = None  # runs of earlier versions do not set it

    def begin(self, rows: Sequence[Row]) -> str:
        keys: dict[str, None] = {}  # a dict, because it keeps the order
        for row in rows:
            keys |= dict.fromkeys(row)
        self._columns = sorted_keys(keys)
        return _line(self._columns, {key: key for key in self._columns})

    def fits(self, row: Row) -> bool:
        return row.keys() <= {*self._columns}

    def text(self, row: Row) -> str:
        digits = self.cfg.digits
        if digits is None:
            return _line(self._columns, row)
        return _line(self._columns, {key: rounded(value, digits) for key, value in row.items()})


def rounded(value: float, digits: int) -> float:
    """Returns a float rounded to this number of significant digits, and an int as it is."""
    if isinstance(value, int):
        return value
    return float(f"{value:.{digits}g}")


def _line(columns: Iterable[str], row: Mapping[str, object]) -> str:
    """Returns a row as a line of the table. Floats are written such that the same number is read back."""
    text = io.StringIO()
    csv.DictWriter(text, [*columns], lineterminator="\n").writerow(row)
    return text.getvalue()


@register("logger", "text")
class Text(RowFile):
    """Writes RUN/metrics.txt, which has a paragraph for each row, with a line for each metric, losses included."""

    file_name = "metrics.txt"

    @config
    class Config:
        digits: Digits = 4  # runs of earlier versions do not set it

    def text(self, row: Row) -> str:
        width = max(map(len, row))
        lines = [f"step {row['step']:,}"]
        for key, value in row.items():
            if key != "step":
                lines.append(f"  {key:<{width}}  {number(value, digits=self.cfg.digits):>12}")
        return "\n".join([*lines, "", ""])
