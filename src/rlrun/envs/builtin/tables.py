"""Reads tables of labelled rows as features and labels. Classes are numbered from 0, and words are one-hot encoded."""

import csv
import gzip
import hashlib
import os
import re
import zlib
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlrun import memory
from rlrun.data_files import open_data
from rlrun.envs.making.unix_compress import MAGIC, CompressFile, CompressFileError
from rlrun.errors import ConfigError

SKLEARN = "sklearn:"
SETS = ("wine", "digits", "breast_cancer", "iris")  # the tables of scikit-learn that have classes
WORDS = 1000  # limit of the different words in a column, because each becomes a column of its own
INDEX = re.compile(r"(unnamed: \d+|index|id|row)$", re.IGNORECASE)  # names of columns that may only number the rows
FEW = 20  # up to so many different words may stand in a column even if most of them occur only once
TAB = r"\t"  # how a tab is typed
NUMBER = re.compile(  # a number as people write it: 1234.5, 1.2e-3, 1,234.5, 1 234,5, $12.50, 7%
    r"[-+]?[$€£¥]?\s?(\d{1,3}([\s,.'\u2019]\d{3})+|\d+|(?=[.,]\d))([.,]\d*)?(e[-+]?\d+)?\s?[$€£¥%]?", re.IGNORECASE
)
LIMIT = 1 << 30  # bytes of an unpacked table; the largest table that our configs name has 361 MB
LINE = 16 << 20  # bytes of one line
LINES = 10_000_000  # of a table; the largest one that our configs name has 2.5 million
COLUMNS = 100_000  # of a table
# a packed file may unpack to at most SMALL bytes plus RATIO times its size (CSV reaches about 20 times)
SMALL = 1 << 20
RATIO = 100
CHUNK = 1 << 16  # bytes read at a time
GZIP = b"\x1f\x8b"  # the first bytes of a gzip file
DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile, CompressFileError)
TOO_LARGE = "the table needs more memory than this machine has"


class DataTable(NamedTuple):
    """A table as numbers. The label is not among the features."""

    features: np.ndarray  # [rows, columns] float32
    labels: np.ndarray  # [rows], the class of each row, as a number from 0
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

    def name(self, index: int) -> str:
        """Returns the name of a column for messages, or its number without a header."""
        if self.names:
            return repr(self.names[index])
        return str(index)


def part_of(table: DataTable, held_out: float, part: str) -> DataTable:
    """Returns the rows of a table for training, or those that are held out, in the order of the table.

    Raises ConfigError if a value is not possible, or if the part has no rows.
    """
    if isinstance(held_out, bool) or not isinstance(held_out, int | float) or not 0 <= held_out < 1:
        raise ConfigError(f"env.kwargs.held_out={held_out}: must be at least 0 and less than 1")
    if part not in ("train", "test"):
        raise ConfigError(f"env.kwargs.part={part}: must be train or test")
    if part == "train" and not held_out:
        return table  # the one in the cache, which evaluations share
    rows = np.sort(_parts(table, held_out)[part])
    if not len(rows):
        raise ConfigError(f"env.kwargs.part={part}: has no rows with env.kwargs.held_out={held_out}")
    return table._replace(features=table.features[rows], labels=table.labels[rows])


def rows_in_both_parts(table: DataTable, held_out: float) -> int:
    """Returns how many of the rows that are held out equal a row for training, in features and label."""
    random = np.random.default_rng(0)
    # rows are compared by hashes, random sums modulo 2^64, because a comparison of rows would sort the whole table
    hashes = np.zeros(len(table.labels), np.uint64)
    for column in (*table.features.T, table.labels.astype(np.float32)):
        numbers = (column + np.float32(0)).view(np.uint32)  # -0.0 + 0.0 is 0.0
        hashes += numbers * random.integers(2**64, dtype=np.uint64)
    parts = _parts(table, held_out)
    return int(np.isin(hashes[parts["test"]], hashes[parts["train"]]).sum())


def _parts(table: DataTable, held_out: float) -> dict[str, np.ndarray]:
    """Returns the indices of the rows of both parts."""
    order = np.random.default_rng(0).permutation(len(table.labels))
    count = round(held_out * len(order))
    return {"test": order[:count], "train": order[count:]}


@lru_cache(maxsize=2)  # each evaluation makes new environments; its table may differ from that of training
def load(
    path: str,
    label: str | int,
    *,
    header: bool = True,
    separator: str | None = ",",
    drop: tuple[str | int, ...] = (),
    missing: str | float | None = None,
    normalize: bool = True,
) -> DataTable:
    """Reads a table from a file, which gzip or compress may have packed, or from scikit-learn (`sklearn:<name>`).

    label, drop: columns, by name if the file has a header, or by number from 0 (-1 is the last). separator: one
    character, or `\\t` for a tab; None means any white space. missing: rows that contain this word are left out.
    normalize: scale every column of numbers to mean 0 and standard deviation 1. A column in which at least half of the
    different words are numbers must hold nothing else. Raises ValueError if the table cannot be read, with one line
    that names the line of the file, the column and the cell, if the fault has these.
    """
    if path.startswith(SKLEARN):
        features, classes = _sklearn(path.removeprefix(SKLEARN))
        names = {number: str(number) for number in classes.tolist()}
        return _table([_scaled(column, normalize) for column in features.T], classes, names, sha256=None)
    try:
        with open_data(Path(path)) as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            rows = _read(file, header, separator, missing)
        label_index = _index(label, rows)
        dropped = {label_index, *(_index(column, rows) for column in drop)}
        kept = [index for index in range(rows.width) if index not in dropped]
        if not kept:
            raise ValueError(f"has no column besides the label (separator={separator!r})")
        _check_names(rows, [*kept, label_index])
        parts: list[np.ndarray] = []
        for index in kept:
            for part in _features(rows, index, normalize):
                parts.append(part)
                if 2 * len(parts) * part.nbytes > _memory():  # `_table` copies them
                    raise ValueError(TOO_LARGE)
        labels, names = _labels(rows, label_index)
        return _table(parts, labels, names, sha256)
    except FileNotFoundError:
        raise ValueError("no such file") from None
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from None
    except MemoryError:
        raise ValueError(TOO_LARGE) from None


def _table(parts: list[np.ndarray], labels: Iterable[object], names: dict[Any, str], sha256: str | None) -> DataTable:
    """Returns a table whose classes are those of `names`, in the order of its keys."""
    number = {label: index for index, label in enumerate(sorted(names))}
    counted = np.array([number[label] for label in labels])
    return DataTable(np.stack(parts, 1), counted, [names[label] for label in number], sha256)


def _read(file: BufferedReader, header: bool, separator: str | None, missing: str | float | None) -> Rows:
    """Returns the rows of an open file, without those that hold the word `missing`.

    Raises ValueError if the text is not a table, as if its rows differ in length, or if it is too large.
    """
    rows = Rows([], [], array("q"))
    lines = _Lines(file, separator)
    width = 0
    missing_words = {str(missing)}
    if missing != missing:  # NaN: a config holds it as a number, however the file spells it
        missing_words = {"nan", "NaN", "NAN"}
    bytes_left = _memory()
    try:
        for number, row in _split(lines, separator):
            if width == 0:
                width = len(row)
            if width > COLUMNS:
                raise ValueError(f"line {number} has {width:,} columns; a table may have at most {COLUMNS:,}")
            if len(row) != width:
                raise ValueError(f"line {number} has {len(row)} columns, the first line has {width}")
            if header and not rows.names:
                rows.names = row
                continue
            if missing is not None and not missing_words.isdisjoint(row):
                continue
            rows.cells.append(row)
            rows.lines.append(number)
            bytes_left -= _size(row, lines.length)
            if bytes_left < 0:
                raise ValueError(f"line {number}: {TOO_LARGE}")
    except csv.Error as error:
        raise ValueError(f"line {lines.begun}: {_csv_fault(error)}") from None
    if not rows.cells:
        raise ValueError("holds no rows")
    return rows


class _Lines:
    """Iterates over the lines of an open file as text; a packed file is unpacked.

    Empty lines are left out. So are lines that begin with |, as in the test file of the data set Adult, unless |
    separates columns. Raises ValueError if the file is not UTF-8 text or is too large for a table.
    """

    def __init__(self, file: BufferedReader, separator: str | None):
        self.file = _unpacked(file)
        self.has_comments = separator != "|"
        self.number = 0  # number of the last line that was read, from 1
        self.begun = 0  # number of the first line of the current row
        self.length = 0  # bytes of the current row

    def __iter__(self) -> Iterator[str]:
        while line := self.file.readline(LINE + 1):
            self.number += 1
            if len(line) > LINE:
                raise ValueError(f"line {self.number}: has more than {LINE:,} bytes")
            if self.number > LINES:
                raise ValueError(f"has more than {LINES:,} lines, the limit for a table")
            text = self._text(line)
            if not text.strip() or (self.has_comments and text.startswith("|")):
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
            raise ValueError(f"line {self.number}: holds a NUL byte; the file is not a text table")
        try:
            if self.number == 1:  # the first line may begin with a byte order mark
                return line.decode("utf-8-sig")
            return line.decode("utf-8")
        except UnicodeDecodeError as error:
            wrong = line[error.start]
            raise ValueError(f"line {self.number}: byte 0x{wrong:02x} is not UTF-8; convert the file") from None


def _unpacked(file: BufferedReader) -> Any:
    """Returns an open file at its first byte; files that gzip or compress (.Z) have packed are unpacked.

    Raises ValueError if a packed file is damaged, or if the content has more bytes than LIMIT or than a packed file of
    this size may unpack to. For this check a packed file is unpacked once, without keeping the content in memory.
    """
    size = os.fstat(file.fileno()).st_size
    kind, content = _reader(file)
    if kind is None:
        if size > LIMIT:
            raise ValueError(f"has {size:,} bytes; a table may have at most {LIMIT:,}")
        return content
    most = min(LIMIT, SMALL + RATIO * size)
    line, unpacked = 1, 0
    try:
        while chunk := content.read1(CHUNK):
            unpacked += len(chunk)
            if unpacked > most:
                raise ValueError(f"line {line}: {size:,} bytes unpack to more than {most:,}, the limit for a table")
            line += chunk.count(b"\n")
    except DAMAGED as error:
        raise ValueError(f"line {line}: the {kind} file is damaged ({error})") from None
    return _reader(file)[1]


def _reader(file: BufferedReader) -> tuple[str | None, Any]:
    """Returns (the program that packed an open file, a reader at the first byte of the file's content).

    The program is None if the file is not packed.
    """
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
    if separator == TAB:
        separator = "\t"
    if separator is not None:
        if not isinstance(separator, str) or len(separator) != 1 or separator in '"\r\n':
            raise ValueError(rf"separator={separator!r}: must be one character, \t for a tab, or null for white space")
        rows = csv.reader(text, delimiter=separator, strict=True, skipinitialspace=separator != " ")
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
    # each further byte makes at most one word longer, as a word of one character takes two bytes with its separator
    longer = min(len(row), max(0, length - 2 * len(row)))
    return 64 + 8 * len(row) + length + 50 * longer


def _index(column: str | int, rows: Rows) -> int:
    """Returns the number of a column, from 0. Raises ValueError if there is no such column."""
    if isinstance(column, str):
        if column not in rows.names:
            raise ValueError(f"has no column {column!r} (it has {', '.join(rows.names) or 'no header'})")
        return rows.names.index(column)
    if not isinstance(column, int):
        raise ValueError(f"{column!r} must be the name or the number of a column")
    if not -rows.width <= column < rows.width:
        raise ValueError(f"has no column {column}, only {rows.width} columns")
    return column % rows.width


def _check_names(rows: Rows, kept: list[int]) -> None:
    """Raises ValueError if two columns have the same name, or if a column has none, as the index that pandas writes."""
    indices: dict[str, int] = {}
    for index in kept:
        if not rows.names:
            return
        name = rows.names[index]
        if not name:
            raise ValueError(f"column {index} has no name; if it only numbers the rows, leave it out by drop=[{index}]")
        if name in indices:
            first, last = sorted([indices[name], index])
            raise ValueError(f"columns {first} and {last} are both named {name!r}; leave one out, as by drop=[{last}]")
        indices[name] = index


def _values(rows: Rows, index: int) -> np.ndarray | None:
    """Returns a column of numbers, None for a column of words.

    Raises ValueError for the first cell that is no finite number in a column in which at least half of the different
    words are numbers.
    """
    column = rows.column(index)
    try:
        values = np.array([float(word) for word in column])
    except ValueError:
        words = set(column)
        if 2 * sum(1 for word in words if NUMBER.fullmatch(word)) < len(words):
            return None
        row = next(row for row, word in enumerate(column) if not _is_plain(word))
        remedy = "set missing to this word to leave out such rows"
        if NUMBER.fullmatch(column[row]):
            remedy = "write it as 1234.5 is written"
        where = f"line {rows.lines[row]}: {column[row][:40]!r} in column {rows.name(index)}"
        raise ValueError(f"{where} is not a number, as others there are; {remedy}, or drop the column") from None
    finite = np.isfinite(values)
    if not finite.all():
        row = int(np.argmin(finite))
        where = f"line {rows.lines[row]}: {column[row]} in column {rows.name(index)}"
        raise ValueError(f"{where} is not finite; name it in missing")
    return values


def _is_plain(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _exact(word: str) -> int | float:
    """Returns a number without rounding large integers."""
    try:
        return int(word)
    except ValueError:
        return float(word)


def _labels(rows: Rows, index: int) -> tuple[list[Any], dict[Any, str]]:
    """Returns the class of every row, and the name of every class. Equal numbers, such as 0 and 0.0, are one class.

    Raises ValueError if the column does not hold classes: if a cell is empty, if all cells are equal, or if they seem
    to be measured values, which rarely repeat or have fractions.
    """
    column, name = rows.column(index), rows.name(index)
    for row, word in enumerate(column):
        if not word:
            raise ValueError(f"line {rows.lines[row]}: the label in column {name} is empty; set missing to ''")
        if rows.names and word == rows.names[index]:
            raise ValueError(
                f"line {rows.lines[row]}: the label is {name}, which the first line holds as the name of the column; "
                "set header=false if the first line is a row"
            )
    values = _values(rows, index)
    labels: list[Any] = column
    whole = True
    if values is not None:
        labels = [_exact(word) for word in column]
        whole = bool((values == np.rint(values)).all())
    names = dict(zip(reversed(labels), reversed(column), strict=True))  # reversed: the first word of a class stays
    if len(names) == 1:
        raise ValueError(f"all labels in column {name} are {column[0][:40]!r}; a label has two classes or more")
    if len(names) > FEW and (not whole or 2 * len(names) > len(column)):
        raise ValueError(
            f"column {name} holds {len(names):,} different values in {len(column):,} rows, such as {column[0][:40]!r}, "
            "which are no classes; name another column in label"
        )
    return labels, names


def _features(rows: Rows, index: int, normalize: bool) -> Iterable[np.ndarray]:
    """Returns one column as numbers, or a column of words as one column for each different word."""
    values = _values(rows, index)
    if values is None:
        return _one_hot(rows.column(index), rows.name(index))
    numbered = values - np.array(rows.lines)  # constant if the column numbers the rows
    may_number = INDEX.match(rows.names[index]) if rows.names else index == 0
    if may_number and len(values) > FEW and (numbered == numbered[0]).all():
        raise ValueError(f"column {rows.name(index)} only numbers the rows; name it in drop")
    scaled = _scaled(values, normalize)
    if not np.isfinite(scaled).all():
        raise ValueError(f"column {rows.name(index)} holds numbers that are too large for 32 bits")
    return [scaled]


def _one_hot(column: list[str], name: str) -> Iterator[np.ndarray]:
    words = sorted(set(column))
    if len(words) > WORDS or (len(words) > FEW and 2 * len(words) > len(column)):
        found = f"{len(words):,} different words in {len(column):,} rows, such as {words[0][:40]!r}"
        raise ValueError(f"column {name} holds {found}; name it in drop")
    number = {word: index for index, word in enumerate(words)}
    numbers = np.array([number[word] for word in column])
    for index in range(len(words)):
        yield (numbers == index).astype(np.float32)


def _scaled(values: np.ndarray, normalize: bool) -> np.ndarray:
    """Returns float32 numbers, standardised if `normalize` is set; those beyond float32's range are infinite or NaN."""
    with np.errstate(over="ignore", invalid="ignore"):
        if normalize:
            values = (values - values.mean()) / (values.std() or 1.0)
        return values.astype(np.float32)


def _sklearn(name: str) -> tuple[np.ndarray, np.ndarray]:
    if name not in SETS:
        raise ValueError(f"must be one of {', '.join(SKLEARN + name for name in SETS)}")
    try:
        from sklearn import datasets
    except ModuleNotFoundError as error:
        raise ValueError("scikit-learn is not installed; pip install 'rlrun[datasets]'") from error
    return getattr(datasets, f"load_{name}")(return_X_y=True)
