"""Files of labelled rows, as numbers: classes counted from 0, words one-hot, the label nowhere among the features."""

import csv
import gzip
import hashlib
import os
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlrun.data_files import open_data

SKLEARN = "sklearn:"
WORDS = 1000  # of a column, at most: each becomes a column
LIMIT = 1 << 30  # bytes of a table, unpacked; the largest that we name has 361 MB
LINE = 16 << 20  # bytes of one line
RATIO = 100  # a .gz file that unpacks to more than this many times its size is no table (CSV reaches about 20)
CHUNK = 1 << 16  # bytes read at a time
SMALL = 1 << 20  # bytes that a .gz file may unpack to, whatever its size
GZIP = b"\x1f\x8b"  # how such a file begins
TOO_LARGE = "the table needs more memory than this machine has"


class Table(NamedTuple):
    """features [rows, columns] float32, labels [rows] from 0, what the classes are called, the SHA-256 of the file."""

    features: np.ndarray
    labels: np.ndarray
    classes: list[str]
    sha256: str | None  # None for tables that a package brings


@dataclass
class Rows:
    """A table as text."""

    names: list[str]  # of the columns; empty without a header
    cells: list[list[str]]
    lines: "array[int]"  # of each row, its line in the file, counted from 1

    @property
    def width(self) -> int:
        return len(self.cells[0])

    def column(self, index: int) -> list[str]:
        return [row[index] for row in self.cells]


@lru_cache(maxsize=2)  # every evaluation makes its environments anew, perhaps over a table of its own
def load(
    path: str,
    label: str | int,
    *,
    header: bool = True,
    separator: str | None = ",",
    drop: tuple[str | int, ...] = (),
    missing: str | None = None,
    normalize: bool = True,
) -> Table:
    """Read a file, plain or packed with gzip, or `sklearn:<name>`.

    label, drop: columns, by name where the file has a header, else by number from 0 (-1: the last). separator: None is
    any white space. missing: rows that hold this word are left out. normalize: every column of numbers to mean 0 and
    standard deviation 1. Raises ValueError, in one line with the row, for what cannot be read so.
    """
    if path.startswith(SKLEARN):
        features, labels = _sklearn(path.removeprefix(SKLEARN))
        parts = [_standardised(column, normalize) for column in features.T]
        return _table(parts, labels.tolist(), separator, sha256=None)
    try:
        with open_data(Path(path)) as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            rows = _read(file, header, separator, missing)
        of_label = _place(label, rows)
        left_out = {of_label, *(_place(column, rows) for column in drop)}
        kept = [index for index in range(rows.width) if index not in left_out]
        parts = []
        for index in kept:
            parts += _numbers(rows, index, normalize)
        return _table(parts, rows.column(of_label), separator, sha256)
    except FileNotFoundError:
        raise ValueError("no such file") from None
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from None
    except MemoryError:
        raise ValueError(TOO_LARGE) from None


def _table(parts: list[np.ndarray], labels: list[Any], separator: str | None, sha256: str | None) -> Table:
    if not parts:
        raise ValueError(f"has no column besides the label (separator={separator!r})")
    classes = sorted(set(labels), key=_order)
    number = {name: index for index, name in enumerate(classes)}
    counted = np.array([number[name] for name in labels])
    return Table(np.stack(parts, 1), counted, [str(name) for name in classes], sha256)


def _read(file: BufferedReader, header: bool, separator: str | None, missing: str | None) -> Rows:
    """All rows of an open file, each as wide as the first."""
    rows = Rows([], [], array("q"))
    lines = _Lines(file)
    memory = _memory()
    try:
        for number, row in _split(lines, separator):
            if header and not rows.names:
                rows.names = row
                continue
            if missing is not None and missing in row:
                continue
            if rows.cells and len(row) != rows.width:
                raise ValueError(f"row {number} has {len(row)} columns, others {rows.width}")
            rows.cells.append(row)
            rows.lines.append(number)
            memory -= _size(row, lines.length)
            if memory < 0:
                raise ValueError(f"row {number}: {TOO_LARGE}")
    except csv.Error as error:
        raise ValueError(f"row {lines.begun}: {_csv_fault(error)}") from None
    if not rows.cells:
        raise ValueError("holds no rows")
    return rows


class _Lines:
    """The lines of an open file as text, unpacked where it is packed, without empty ones and those that begin with |
    (Adult's test file). Raises ValueError for what is no text, and for more of it than a table has."""

    def __init__(self, file: BufferedReader):
        self.file = _unpacked(file)
        self.number = 0  # of the last line read, from 1
        self.begun = 0  # of the line that the current row begins with
        self.length = 0  # bytes of the current row

    def __iter__(self) -> Iterator[str]:
        while line := self.file.readline(LINE + 1):
            self.number += 1
            if len(line) > LINE:
                raise ValueError(f"row {self.number}: has more than {LINE:,} bytes")
            text = self._text(line)
            if not text.strip() or text.startswith("|"):
                continue
            if self.length == 0:
                self.begun = self.number
            self.length += len(line)
            yield text

    def next_row(self) -> None:
        """What is read from here on belongs to a new row."""
        self.length = 0

    def _text(self, line: bytes) -> str:
        if b"\0" in line:
            raise ValueError(f"row {self.number}: holds a NUL byte; it is no table of text")
        try:
            if self.number == 1:  # which may begin with a byte order mark
                return line.decode("utf-8-sig")
            return line.decode("utf-8")
        except UnicodeDecodeError as error:
            wrong = line[error.start]
            raise ValueError(f"row {self.number}: byte 0x{wrong:02x} is not UTF-8; convert the file") from None


def _unpacked(file: BufferedReader) -> Any:
    """An open file from its first byte on, unpacked where it is packed. Raises ValueError for more bytes than LIMIT, or
    more than a packed table of its size can hold, before anything is kept in memory."""
    size = os.fstat(file.fileno()).st_size
    file.seek(0)
    packed = file.read(len(GZIP)) == GZIP
    file.seek(0)
    if not packed:
        if size > LIMIT:
            raise ValueError(f"has {size:,} bytes; a table may have {LIMIT:,}")
        return file
    most = min(LIMIT, SMALL + RATIO * size)
    row, unpacked = 1, 0
    try:
        with gzip.GzipFile(fileobj=file) as content:
            while chunk := content.read1(CHUNK):
                unpacked += len(chunk)
                if unpacked > most:
                    raise ValueError(f"row {row}: {size:,} bytes unpack to more than {most:,}, which no table does")
                row += chunk.count(b"\n")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"row {row}: the gzip file is damaged ({error})") from None
    file.seek(0)
    return gzip.GzipFile(fileobj=file)


def _split(lines: _Lines, separator: str | None) -> Iterator[tuple[int, list[str]]]:
    """Rows of words, each with the number of its first line. Raises csv.Error."""
    text = iter(lines)
    rows: Iterator[list[str]] = map(str.split, text)
    if separator is not None:
        rows = csv.reader(text, delimiter=separator, strict=True)
    while True:
        lines.next_row()
        row = next(rows, None)
        if row is None:
            return
        yield lines.begun, [word.strip() for word in row]


def _csv_fault(error: csv.Error) -> str:
    """The fault that a csv.Error means, in plain words."""
    if "unexpected end of data" in str(error):
        return "a quote is never closed"
    return str(error)


def _memory() -> int:
    """Bytes that the text of a table may take: half of this machine's, for the numbers stand beside it."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _size(row: list[str], length: int) -> int:
    """Bytes of a row in memory. Python keeps one object for each word of one letter, others take some 50 bytes each."""
    longer = min(len(row), max(0, length - 2 * len(row)))
    return 64 + 8 * len(row) + length + 50 * longer


def _place(column: str | int, rows: Rows) -> int:
    if isinstance(column, str):
        if column not in rows.names:
            raise ValueError(f"has no column {column!r} (it has: {', '.join(rows.names) or 'no header'})")
        return rows.names.index(column)
    if not -rows.width <= column < rows.width:
        raise ValueError(f"has no column {column}, there are {rows.width}")
    return column % rows.width


def _numbers(rows: Rows, index: int, normalize: bool) -> list[np.ndarray]:
    """One column as numbers; a column of words as one column for each word."""
    column = rows.column(index)
    name: str | int = index
    if rows.names:
        name = repr(rows.names[index])
    try:
        values = np.array([float(word) for word in column])
    except ValueError:
        return _one_hot(column, name)
    finite = np.isfinite(values)
    if not finite.all():
        row = int(np.argmin(finite))
        raise ValueError(f"row {rows.lines[row]}: {column[row]} in column {name} is not finite; name it in missing")
    return [_standardised(values, normalize)]


def _one_hot(column: list[str], name: str | int) -> list[np.ndarray]:
    words = sorted(set(column))
    if len(words) > WORDS:
        found = f"{len(words):,} different words, such as {words[0][:40]!r}"
        raise ValueError(f"column {name} holds {found}; name it in drop")
    number = {word: index for index, word in enumerate(words)}
    numbers = np.array([number[word] for word in column])
    return [(numbers == index).astype(np.float32) for index in range(len(words))]


def _standardised(values: np.ndarray, normalize: bool) -> np.ndarray:
    if normalize:
        values = (values - values.mean()) / (values.std() or 1.0)
    return values.astype(np.float32)


def _order(name: Any) -> tuple[float, str]:
    """Numbers by size, words by letter."""
    try:
        return float(name), str(name)
    except ValueError:
        return np.inf, str(name)


def _sklearn(name: str) -> tuple[np.ndarray, np.ndarray]:
    try:
        from sklearn import datasets
    except ModuleNotFoundError as error:
        raise ValueError("scikit-learn is not installed; pip install rlrun[datasets]") from error
    load = getattr(datasets, f"load_{name}", None)
    if load is None:
        raise ValueError("scikit-learn has no such data set (wine, digits, breast_cancer, iris)")
    return load(return_X_y=True)
