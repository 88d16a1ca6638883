"""metrics.jsonl, the truth of a run: one JSON object per step value, written whole, readable while it grows."""

import json
import math
import os
from collections.abc import Iterator
from numbers import Integral
from pathlib import Path
from typing import Any

from rlrun.errors import RunError

Row = dict[str, Any]  # key -> int or float; always has "step" and "wall_s"

GROUPS = ("step", "wall_s", "train", "eval", "loss", "time", "sys")


class MetricsFile:
    """Appends rows to `path`. After a resume only the rows up to `from_step` are kept, also in `past`."""

    def __init__(self, path: Path, from_step: int):
        self.path = path
        self.past = _cut(path, from_step) if from_step > 0 and path.exists() else []
        fresh = 0 if from_step > 0 else os.O_TRUNC
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | fresh, 0o644)

    def append(self, row: Row) -> None:
        """Write one line in one call, so that a reader never meets half a row. Raises RunError on a full disk."""
        line = json.dumps(row, allow_nan=False).encode() + b"\n"
        size = os.fstat(self._file).st_size
        try:
            written = os.write(self._file, line)
        except OSError as error:
            raise RunError(f"{self.path}: cannot write metrics: {error.strerror}") from error
        if written < len(line):
            os.ftruncate(self._file, size)
            raise RunError(f"{self.path}: cannot write metrics: no space left")

    def sync(self) -> None:
        """Return once every row is on the disk."""
        os.fsync(self._file)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def ordered(values: dict[str, Any]) -> Row:
    """Plain finite numbers, groups in a fixed order; inside a group, the order given. Others are left out."""
    plain = {k: int(v) if isinstance(v, Integral) else float(v) for k, v in values.items()}
    rank = {group: i for i, group in enumerate(GROUPS)}
    keys = sorted(plain, key=lambda key: rank.get(key.split("/")[0], len(GROUPS)))
    return {key: plain[key] for key in keys if math.isfinite(plain[key])}


def read_rows(path: Path) -> list[Row]:
    """All whole rows of a metrics file; a torn line is passed over."""
    return [row for _, row in _lines(path)]


def _lines(path: Path) -> Iterator[tuple[bytes, Row]]:
    with path.open("rb") as file:
        for line in file:
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if line.endswith(b"\n") and isinstance(row, dict) and is_number(row.get("step")):
                yield line, row


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cut(path: Path, step: int) -> list[Row]:
    """Leave only whole rows up to `step` in the file, in one atomic replacement, and return them."""
    kept = [(line, row) for line, row in _lines(path) if row["step"] <= step and is_number(row.get("wall_s"))]
    temporary = path.with_name(f".{path.name}.cut")
    with temporary.open("wb") as file:
        file.writelines(line for line, _ in kept)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    return [row for _, row in kept]
