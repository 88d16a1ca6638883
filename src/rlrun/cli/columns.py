"""Prints tables with aligned columns. On a terminal they are fitted to its width."""

import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap

from rlrun.errors import printable

GAP, INDENT = "  ", "    "
NARROWEST = 24  # minimum width of a wrapped column


def print_columns(rows: Iterable[Sequence[str]]) -> None:
    """Prints rows, which must all have the same number of cells."""
    width = None
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
    cells = [list(map(printable, row)) for row in rows]
    for line in columns(cells, width):
        print(line)


def columns(rows: Sequence[Sequence[str]], width: int | None = None) -> Iterator[str]:
    """Returns the lines of a table with aligned cells.

    If the table is wider than `width`, the last column is wrapped. If that column would be narrower than `NARROWEST` or
    than its longest word, the cells that do not fit are printed below their row instead.
    """
    if not rows:
        return iter(())
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    last_start = sum(widths[:-1]) + len(GAP) * (len(widths) - 1)
    if width is None or last_start + widths[-1] <= width:
        return (_aligned(row, widths) for row in rows)
    room = width - last_start
    words = " ".join(row[-1] for row in rows).split()
    longest = max(map(len, words), default=0)
    if room >= max(NARROWEST, longest):
        return _wrapped(rows, widths, last_start, room)
    return _stacked(rows, widths, width)


def _wrapped(rows: Sequence[Sequence[str]], widths: Sequence[int], last_start: int, room: int) -> Iterator[str]:
    """Yields lines in which the last column, which begins at `last_start`, is wrapped to `room` characters."""
    for row in rows:
        first, *rest = wrap(row[-1], room, break_on_hyphens=False) or [""]
        yield _aligned([*row[:-1], first], widths)
        for line in rest:
            yield " " * last_start + line


def _stacked(rows: Sequence[Sequence[str]], widths: Sequence[int], width: int) -> Iterator[str]:
    """Yields lines in which the cells that do not fit are below their row."""
    ends = [sum(widths[: i + 1]) + len(GAP) * i for i in range(len(widths))]
    fitting = max(1, sum(end <= width for end in ends))  # the first cell begins its row even if it is too wide
    for row in rows:
        yield _aligned(row[:fitting], widths)
        below = GAP.join(filter(None, row[fitting:]))
        yield from wrap(
            below,
            width,
            initial_indent=INDENT,
            subsequent_indent=INDENT,
            break_long_words=False,
            break_on_hyphens=False,
        )


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    return GAP.join(map(str.ljust, row, widths)).rstrip()
