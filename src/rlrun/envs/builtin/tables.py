"""Reads tables of labelled rows as features and labels. Classes are numbered from 0, and words are one-hot encoded."""

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

from rlrun import memory
from rlrun.data_files import open_data
from rlrun.envs.unix_compress import MAGIC, CompressFile, CompressFileError

SKLEARN = "sklearn:"
WORDS = 1000  # the most different words of a column; each of them becomes a column
LIMIT = 1 << 30  # bytes of an unpacked table; the largest table that our configs name has 361 MB
LINE = 16 << 20  # bytes of one line
RATIO = 100  # a packed file may unpack to at most SMALL bytes plus RATIO times its size (CSV reaches about 20 times)
CHUNK = 1 << 16  # bytes read at a time
SMALL = 1 << 20
GZIP = b"\x1f\x8b"  # the first bytes of a gzip file
DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile, CompressFileError)
TOO_LARGE = "the table needs more memory than this machine has"


class Table(NamedTuple):
    """A table as numbers. The label is not among the features."""

    features: np.ndarray  # [rows, columns] float32
    labels: np.ndarray  # [rows], numbers of classes from 0
    classes: list[str]  # the names of the classes, by number
    sha256: str | None  # of the file; None for tables of scikit-learn


@dataclass
class Rows:
    """A table as text."""

    names: list[str]  # names of the columns; empty without a header
    cells: list[list[str]]  # the words of each row
    lines: "array[int]"  # the number of each row's first line in the file, from 1

    @property
    def width(self) -> int:
        return len(self.cells[0])

    def column(self, index: int) -> list[str]:
        return [row[index] for row in self.cells]


@lru_cache(maxsize=2)  # each evaluation makes new environments; its table may differ from that of training
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
    """Reads a table from a file, which gzip or compress may have packed, or from scikit-learn (`sklearn:<name>`).

    label, drop: columns, by name if the file has a header, or by number from 0 (-1 is the last). separator: None means
    any white space. missing: rows that contain this word are left out. normalize: scale every column of numbers to mean
    0 and standard deviation 1. Raises ValueError with one line, which names the row, if the table cannot be read.
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
    """Returns all rows of an open file. Raises ValueError if a row has another number of columns than the first."""
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
                raise ValueError(f"row {number} has {len(row)} columns, rows before it have {rows.width}")
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
    """Iterates over the lines of an open file as text; a packed file is unpacked.

    Empty lines are left out, and lines that begin with |, as in the test file of the data set Adult. Raises ValueError
    if the file is not UTF-8 text or is too large for a table.
    """

    def __init__(self, file: BufferedReader):
        self.file = _unpacked(file)
        self.number = 0  # number of the last line that was read, from 1
        self.begun = 0  # number of the first line of the current row
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
        """Must be called before each row, so that `begun` and `length` are those of the new row."""
        self.length = 0

    def _text(self, line: bytes) -> str:
        if b"\0" in line:
            raise ValueError(f"row {self.number}: holds a NUL byte; the file is not a text table")
        try:
            if self.number == 1:  # the first line may begin with a byte order mark
                return line.decode("utf-8-sig")
            return line.decode("utf-8")
        except UnicodeDecodeError as error:
            wrong = line[error.start]
            raise ValueError(f"row {self.number}: byte 0x{wrong:02x} is not UTF-8; convert the file") from None


def _unpacked(file: BufferedReader) -> Any:
    """Returns an open file at its first byte; files that gzip or compress (.Z) have packed are unpacked.

    Raises ValueError if the content has more bytes than LIMIT, or than a packed file of this size may unpack to. A
    packed file is unpacked once for this check, without keeping the content in memory.
    """
    size = os.fstat(file.fileno()).st_size
    kind, content = _reader(file)
    if kind is None:
        if size > LIMIT:
            raise ValueError(f"has {size:,} bytes; a table may have at most {LIMIT:,}")
        return content
    most = min(LIMIT, SMALL + RATIO * size)
    row, unpacked = 1, 0
    try:
        while chunk := content.read1(CHUNK):
            unpacked += len(chunk)
            if unpacked > most:
                raise ValueError(f"row {row}: {size:,} bytes unpack to more than {most:,}, the limit for a table")
            row += chunk.count(b"\n")
    except DAMAGED as error:
        raise ValueError(f"row {row}: the {kind} file is damaged ({error})") from None
    return _reader(file)[1]


def _reader(file: BufferedReader) -> tuple[str | None, Any]:
    """Returns the program that packed an open file, None if it is not packed, and a reader at the first byte of its
    content."""
    file.seek(0)
    start = file.read(len(GZIP))
    file.seek(0)
    if start == GZIP:
        return "gzip", gzip.GzipFile(fileobj=file)
    if start == MAGIC:
        return "compress", BufferedReader(CompressFile(file))
    return None, file


def _split(lines: _Lines, separator: str | None) -> Iterator[tuple[int, list[str]]]:
    """Yields (number of its first line, words) for every row. Raises csv.Error."""
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
    """Returns the message of a csv.Error, or a clearer one for an unclosed quote."""
    if "unexpected end of data" in str(error):
        return "a quote is never closed"
    return str(error)


def _memory() -> int:
    """Returns the bytes that the text of a table may take: half of the memory, as the numbers need space too."""
    return memory.total() // 2


def _size(row: list[str], length: int) -> int:
    """Returns the approximate size of a row in memory, in bytes.

    Words of one character are shared by Python; each longer word takes about 50 bytes more than its text.
    """
    longer = min(len(row), max(0, length - 2 * len(row)))
    return 64 + 8 * len(row) + length + 50 * longer


def _place(column: str | int, rows: Rows) -> int:
    if isinstance(column, str):
        if column not in rows.names:
            raise ValueError(f"has no column {column!r} (it has {', '.join(rows.names) or 'no header'})")
        return rows.names.index(column)
    if not -rows.width <= column < rows.width:
        raise ValueError(f"has no column {column}, only {rows.width} columns")
    return column % rows.width


def _numbers(rows: Rows, index: int, normalize: bool) -> list[np.ndarray]:
    """Returns one column as numbers, or a column of words as one column for each different word."""
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
    """Returns a sort key: numbers are sorted by value, words alphabetically after them."""
    try:
        return float(name), str(name)
    except ValueError:
        return np.inf, str(name)


def _sklearn(name: str) -> tuple[np.ndarray, np.ndarray]:
    try:
        from sklearn import datasets
    except ModuleNotFoundError as error:
        raise ValueError("scikit-learn is not installed; pip install 'rlrun[datasets]'") from error
    load = getattr(datasets, f"load_{name}", None)
    if load is None:
        raise ValueError("scikit-learn has no such data set (wine, digits, breast_cancer, iris)")
    return load(return_X_y=True)
