"""Files of labelled rows, as numbers: classes counted from 0, words one-hot, the label nowhere among the features."""

import csv
import gzip
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np

SKLEARN = "sklearn:"
WORDS = 1000  # of a column, at most: each becomes a column


class Table(NamedTuple):
    """features [rows, columns] float32, labels [rows] from 0, and what the classes are called."""

    features: np.ndarray
    labels: np.ndarray
    classes: list[str]


@lru_cache(maxsize=1)  # every evaluation makes its environments anew
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
    """Read a file, plain or .gz, or `sklearn:<name>`.

    label, drop: columns, by name where the file has a header, else by number from 0 (-1: the last). separator: None is
    any white space. missing: rows that hold this word are left out. normalize: every column of numbers to mean 0 and
    deviation 1. Raises ValueError for what cannot be read so.
    """
    if path.startswith(SKLEARN):
        features, labels = _sklearn(path.removeprefix(SKLEARN))
        columns = [np.asarray(column) for column in features.T]
    else:
        columns, labels = _columns(Path(path), label, header, separator, drop, missing)
    classes = sorted(set(labels.tolist()), key=_order)
    number = {name: index for index, name in enumerate(classes)}
    parts = [part for column in columns for part in _numbers(column, normalize)]
    if not parts:
        raise ValueError(f"{path}: has no column besides the label (separator={separator!r})")
    return Table(np.stack(parts, 1), np.array([number[name] for name in labels.tolist()]), [str(c) for c in classes])


def _columns(
    path: Path, label: str | int, header: bool, separator: str | None, drop: tuple[str | int, ...], missing: str | None
) -> tuple[list[np.ndarray], np.ndarray]:
    """Features by column, and labels, as text."""
    with _open(path) as file:
        rows = _rows(file, separator)
        first = next(rows, [])
        names: list[str] = first if header else []
        kept = [] if header else [first]
        kept += [row for row in rows if missing is None or missing not in row]
    if missing is not None and not header and missing in first:
        kept = kept[1:]
    if not kept:
        raise ValueError(f"{path}: holds no rows")
    wide = next((number for number, row in enumerate(kept) if len(row) != len(kept[0])), None)
    if wide is not None:
        raise ValueError(f"{path}: row {wide + 1 + header} has {len(kept[wide])} columns, others {len(kept[0])}")
    of_label, dropped = _place(label, names, len(kept[0]), path), {_place(c, names, len(kept[0]), path) for c in drop}
    columns = [np.array(column) for column in zip(*kept, strict=True)]
    return [column for i, column in enumerate(columns) if i not in {of_label, *dropped}], columns[of_label]


def _open(path: Path) -> TextIO:
    if not path.is_file():
        raise ValueError(f"path={path}: no such file")
    return gzip.open(path, "rt") if path.suffix == ".gz" else path.open()


def _rows(file: TextIO, separator: str | None) -> Iterator[list[str]]:
    """Rows of words; empty lines and lines that begin with | (Adult's test file) are none."""
    lines = (line for line in file if line.strip() and not line.startswith("|"))
    if separator is None:
        return (line.split() for line in lines)
    return ([word.strip() for word in row] for row in csv.reader(lines, delimiter=separator))


def _place(column: str | int, names: list[str], width: int, path: Path) -> int:
    if isinstance(column, str):
        if column not in names:
            raise ValueError(f"{path}: has no column {column!r} (it has: {', '.join(names) or 'no header'})")
        return names.index(column)
    if not -width <= column < width:
        raise ValueError(f"{path}: has no column {column}, there are {width}")
    return column % width


def _numbers(column: np.ndarray, normalize: bool) -> list[np.ndarray]:
    """One column as numbers; one of words as many as it has words."""
    try:
        values = column.astype(np.float64)
    except ValueError:
        words = sorted(set(column.tolist()))
        if len(words) > WORDS:
            found = f"{len(words):,} different words, such as {words[0]!r}"
            raise ValueError(f"a column holds {found}; name it in drop") from None
        return [(column == word).astype(np.float32) for word in words]
    if not np.isfinite(values).all():
        raise ValueError("a column holds numbers that are not finite; name what stands for a missing value")
    if normalize:
        values = (values - values.mean()) / (values.std() or 1.0)
    return [values.astype(np.float32)]


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
        raise ValueError(f"path={SKLEARN}{name}: scikit-learn is not installed; pip install rlrun[datasets]") from error
    load = getattr(datasets, f"load_{name}", None)
    if load is None:
        raise ValueError(f"path={SKLEARN}{name}: scikit-learn has no such data set (wine, digits, breast_cancer, iris)")
    return load(return_X_y=True)
