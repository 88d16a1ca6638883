"""Tables on stdout: aligned columns, fitted to the width of a terminal; as they are where stdout is none."""

import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from textwrap import wrap

from rlrun.errors import printable

GAP, INDENT = "  ", "    "
NARROWEST = 24  # letters that a wrapped column has at least


def print_columns(rows: Iterable[Sequence[str]]) -> None:
    """Print rows, all with the same number of cells."""
    width = None
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
    cells = [list(map(printable, row)) for row in rows]
    for line in columns(cells, width):
        print(line)


def columns(rows: Sequence[Sequence[str]], width: int | None = None) -> Iterator[str]:
    """Lines of aligned cells.

    Where they are wider than `width` the last column is wrapped; where too little room is left for that, or a word
    such as a path would be broken, the cells that do not fit stand below their row.
    """
    if not rows:
        return
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    ends = list(accumulate(widths, lambda end, width: end + len(GAP) + width))  # of the columns
    if width is None or ends[-1] <= width:
        for row in rows:
            yield _aligned(row, widths)
        return
    room = width - ends[-1] + widths[-1]
    words = " ".join(row[-1] for row in rows).split()
    longest = max(map(len, words), default=0)
    if room >= max(NARROWEST, longest):
        for row in rows:
            first, *rest = wrap(row[-1], room, break_on_hyphens=False) or [""]
            yield _aligned([*row[:-1], first], widths)
            for line in rest:
                yield " " * (width - room) + line
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
    return GAP.join(map(str.ljust, row, widths)).rstrip()
