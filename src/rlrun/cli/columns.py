"""Tables on stdout: aligned columns, fitted to the width of a terminal; as they are where stdout is none."""

import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap

from rlrun.errors import printable

GAP, INDENT = "  ", "    "
NARROWEST = 24  # letters that a wrapped column has at least


def print_columns(rows: Iterable[Sequence[str]]) -> None:
    """Print rows of equally many cells."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in columns([[*map(printable, row)] for row in rows], width):
        print(line)


def columns(rows: Sequence[Sequence[str]], width: int | None = None) -> Iterator[str]:
    """Lines of aligned cells.

    Where they are wider than `width` the last column is wrapped; where too little room is left for that, or a word
    such as a path would be broken, the cells that do not fit stand below their row.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    ends = [sum(widths[: count + 1]) + count * len(GAP) for count in range(len(widths))]
    if width is None or not rows or ends[-1] <= width:
        yield from (_aligned(row, widths) for row in rows)
        return
    room = width - ends[-1] + widths[-1]
    longest = max((len(word) for row in rows for word in row[-1].split()), default=0)
    if room >= max(NARROWEST, longest):
        for row in rows:
            first, *rest = wrap(row[-1], room, break_on_hyphens=False) or [""]
            yield _aligned([*row[:-1], first], widths)
            yield from (" " * (width - room) + line for line in rest)
        return
    fitting = max(1, sum(end <= width for end in ends))
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
    return GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip()
