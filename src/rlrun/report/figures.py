"""Describes the pictures of a comparison as panels of marks in data units, and the look of each method.

`svg` draws panels for the page, `png` draws whole pictures for slides. Methods differ in colour, dashes and marker, so
that they can be distinguished without colour.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rlrun.report.compare import Cell, Comparison
from rlrun.report.names import printable, shortened
from rlrun.report.statistics import Array, interval, iqm, mean

# The hues of Okabe and Ito in their order, dark enough for a white background; page.css has colours for a dark one.
COLOURS = ("#0068b0", "#c8500a", "#00805a", "#a8478b", "#8a6d00", "#4a4fb5", "#5f6b73", "#0d8a9e")
DASHES = ((), (8, 3), (2, 2), (8, 3, 2, 3), (14, 4), (4, 2), (9, 2, 2, 2, 2, 2))  # lengths of dashes and gaps, pixels
MARKERS = "osD^vPX*<>"
LINES = 400  # maximum number of runs for which the curves of single runs are drawn
TRAINING = ("train/return_mean", "loss/actor", "loss/critic", "loss/entropy")  # metrics with small curves
UNITS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
PAIRS = 21  # maximum number of pairs of methods in the picture of improvements; the table has all pairs

# The kinds of marks, in the order in which they are drawn.
BAND = "band"  # the area between two curves
SINGLE = "single"  # the curve of one run
MEAN = "mean"
BAR = "bar"  # an interval
LINE = "line"
RUNS = "runs"  # one dot for each run
POINT = "point"  # a marker
DOT = "dot"  # a dot with its values as text
NAME = "name"  # the name of a row
LABEL = "label"  # a text at a point of the panel
KINDS = (BAND, SINGLE, MEAN, BAR, LINE, RUNS, DOT, POINT, NAME, LABEL)


@dataclass(frozen=True)
class Mark:
    """Something drawn for one method."""

    kind: str
    index: int  # of the method (in sweeps, of the trial or the colour), which decides colour, dashes and marker
    x: Array
    y: Array
    ends: tuple[Array, Array] | None = None  # interval of a curve, which the page shows next to the pointer
    text: str = ""  # of a NAME or LABEL; what the page shows next to the pointer for any other mark
    look: str = ""  # more CSS classes


@dataclass(frozen=True)
class Axis:
    """One axis of a panel, with its ends and ticks."""

    low: float
    high: float
    ticks: Sequence[float]
    labels: Sequence[str]
    log: bool = False

    def share(self, values: Array | float) -> Array:
        """Returns the position of values between the ends, as a fraction from 0 to 1."""
        low = self.low
        high = self.high
        found = np.asarray(values, float)
        if self.log:
            low = math.log(low)
            high = math.log(high)
            found = np.log(found)
        return np.asarray((found - low) / (high - low))


@dataclass(frozen=True)
class Panel:
    """Marks on a pair of axes."""

    title: str
    marks: list[Mark]
    x: Axis
    y: Axis
    rows: int = 0  # number of rows, counted by y from the top; 0 if y is a value


@dataclass(frozen=True)
class Picture:
    """Panels that are drawn side by side."""

    name: str  # file name without suffix
    title: str
    panels: list[Panel]
    x_label: str
    y_label: str = ""


def draw(comparison: Comparison, score: str) -> Iterator[Picture]:
    """Yields all pictures, in the order of the page."""
    if not comparison.methods:
        return
    if len(comparison.envs) > 1:
        yield Picture("overview", "Normalised final scores", _overview(comparison), "normalised score")
    words = score.replace("/", " ").replace("_", " ")
    yield Picture("curves", "Learning curves", _curves(comparison), "environment steps", words)
    if training := [*_training(comparison, score)]:
        yield Picture("training", "Training", training, "environment steps")
    yield Picture("final", "Final score of every run", _final(comparison), "final score")
    if any(len(cell.counted) > 1 for cell in comparison):
        panels = [_profiles(comparison)]
        yield Picture("profile", "Performance profiles", panels, "normalised score x", "fraction of runs above x")
    if any(math.isfinite(low) for *_, (low, _) in comparison.pairs):
        panels = [_improvements(comparison)]
        yield Picture("improvement", "Probability of improvement", panels, "probability that the first scores more")


def _overview(comparison: Comparison) -> list[Panel]:
    columns: tuple[tuple[str, Callable[..., Array], str], ...] = (
        ("IQM", iqm, "final"),
        ("Mean", mean, "final"),
        ("IQM of the best", iqm, "best"),
    )
    panels = []
    for title, statistic, scores in columns:
        marks = []
        for index, name in enumerate(comparison.methods):
            strata = comparison.strata(name, scores)
            centre = float(statistic(np.hstack(strata)))
            marks += estimate(index, index, name, centre, interval(strata, statistic))
        panels.append(_table(title, marks, len(comparison.methods)))
    return panels


def _curves(comparison: Comparison) -> list[Panel]:
    singles = sum(len(cell.series) for cell in comparison) <= LINES
    panels = []
    for env in comparison.envs:
        marks = []
        for cell in comparison.on(env):
            index = comparison.methods.index(cell.method)
            marks += _curve(index, cell.grid, cell.centre, *cell.band)
            marks.append(Mark(POINT, index, cell.grid[-1:], cell.centre[-1:]))
            if len(cell.counted) > 1:
                marks.append(Mark(MEAN, index, cell.grid, cell.curves.mean(0)))
            if singles:
                marks += _singles(index, cell)
        panels.append(_plane(env, marks))
    return panels


def _training(comparison: Comparison, score: str) -> Iterator[Panel]:
    """Yields a panel for each metric of `TRAINING` in each environment, with the interquartile mean of each method.

    score: the metric that has curves already.
    """
    metrics = {key: comparison.of_metric(key) for key in TRAINING if key != score}
    for env in comparison.envs:
        for key, metric in metrics.items():
            marks = []
            for cell in metric.on(env):
                index = comparison.methods.index(cell.method)
                unknown = np.full(len(cell.grid), np.nan)  # without an interval
                marks.append(Mark(LINE, index, cell.grid, cell.centre, (unknown, unknown)))
                marks.append(Mark(POINT, index, cell.grid[-1:], cell.centre[-1:]))
            if marks:
                title = key
                if len(comparison.envs) > 1:
                    title = f"{key}, {env}"
                yield _plane(title, marks)


def _curve(index: int, x: Array, y: Array, low: Array, high: Array) -> list[Mark]:
    """Returns a line and its interval: a band, or a bar if the line has only one point. A NaN interval is left out."""
    line = Mark(LINE, index, x, y, (low, high))
    if not np.isfinite(low).all():
        return [line]
    if len(x) == 1:
        return [Mark(BAR, index, x.repeat(2), np.hstack([low, high])), line]
    return [Mark(BAND, index, np.hstack([x, x[::-1]]), np.hstack([low, high[::-1]])), line]


def _singles(index: int, cell: Cell) -> Iterator[Mark]:
    for one in cell.series:
        every = max(1, len(one.steps) // cell.points)
        kind = SINGLE
        if len(one.steps) == 1:
            kind = RUNS
        yield Mark(kind, index, one.steps[::every], one.values[::every])


def _final(comparison: Comparison) -> list[Panel]:
    panels = []
    for env in comparison.envs:
        marks = []
        cells = comparison.on(env)
        for row, cell in enumerate(cells):
            index = comparison.methods.index(cell.method)
            marks += estimate(row, index, cell.method, float(iqm(cell.final)), cell.final_interval)
            marks.append(Mark(RUNS, index, cell.final, np.full(len(cell.final), row + 0.8)))
        panels.append(_table(env, marks, len(cells)))
    return panels


def _profiles(comparison: Comparison) -> Panel:
    marks = []
    for index, name in enumerate(comparison.methods):
        marks += _curve(index, comparison.thresholds, *comparison.profiles[name])
    return Panel("", in_order(marks), axis(comparison.thresholds, margin=0.0), axis([0, 1], margin=0.02))


def _improvements(comparison: Comparison) -> Panel:
    marks = []
    pairs = [pair for pair in comparison.pairs if math.isfinite(pair[3][0])][:PAIRS]
    for row, (x, y, chance, ends) in enumerate(pairs):
        name = f"{shortened(x, 24)} > {shortened(y, 24)}"
        marks += estimate(row, comparison.methods.index(x), name, chance, ends)
    half = Axis(-0.02, 1.02, (0, 0.5, 1), ("0", "0.5", "1"))
    return Panel("", in_order(marks), half, downwards(len(pairs)), len(pairs))


def estimate(row: int, index: int, name: str, centre: float, ends: tuple[Array | float, Array | float]) -> list[Mark]:
    """Returns the marks of a row: a name in the upper half, and a marker on its interval in the lower half."""
    low, high = map(float, ends)
    height = np.array([row + 0.62])
    marks = [Mark(NAME, index, np.empty(0), height, text=name)]
    text = f"{name}: {short(centre, 4)} (too few runs for an interval)"
    if math.isfinite(low):
        text = f"{name}: {short(centre, 4)} ({short(low, 4)} to {short(high, 4)})"
        marks.append(Mark(BAR, index, np.array([low, high]), height.repeat(2)))
    return [*marks, Mark(POINT, index, np.array([centre]), height, text=text)]


def _table(title: str, marks: list[Mark], rows: int) -> Panel:
    return Panel(title, in_order(marks), axis(np.hstack([mark.x for mark in marks])), downwards(rows), rows)


def _plane(title: str, marks: list[Mark]) -> Panel:
    x = axis(np.hstack([mark.x for mark in marks]))
    y = axis(np.hstack([mark.y for mark in marks]))
    return Panel(title, in_order(marks), x, y)


def in_order(marks: list[Mark]) -> list[Mark]:
    """Returns marks in the order in which they are drawn."""
    return sorted(marks, key=lambda mark: KINDS.index(mark.kind))


def downwards(rows: int) -> Axis:
    """Returns the axis of a number of rows, from the top."""
    return Axis(rows, 0, (), ())


def axis(values: Sequence[float] | Array, count: int = 5, margin: float = 0.04) -> Axis:
    """Returns an axis that contains all values with a margin, with at most about `count` round ticks."""
    low = float(np.min(values))
    high = float(np.max(values))
    size = max(abs(low), abs(high))
    if high - low <= 1e-9 * size or high - low < 1e-90:  # too close for distinct ticks
        low -= max(0.1 * size, 0.5)
        high += max(0.1 * size, 0.5)
    space = margin * (high - low)
    low -= space
    high += space
    ticks = _ticks(low, high, count)
    return Axis(low, high, ticks, _labels(ticks))


def _ticks(low: float, high: float, count: int) -> list[float]:
    """Returns multiples of 1, 2, 2.5 or 5 times a power of ten between `low` and `high`."""
    power = 10.0 ** math.floor(math.log10((high - low) / count))
    for factor in (1, 2, 2.5, 5, 10, 20):
        step = power * factor
        if (high - low) / step <= count:
            break
    return [step * multiple for multiple in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _labels(ticks: Sequence[float]) -> list[str]:
    """Returns the labels of ticks, with as few digits as make all labels different."""
    for digits in range(3, 16):
        labels = [short(tick, digits) for tick in ticks]
        if len({*labels}) == len(labels):
            break
    return labels


def short(value: float, digits: int = 3) -> str:
    """Formats a number with `digits` digits, such as 1.5M, 20k, 0.25 or 3e12."""
    value = float(f"{value:.{digits}g}")
    size = abs(value)
    if size >= 1e12 or 0 < size < 1e-4:
        fraction, _, power = f"{value:.{digits - 1}e}".partition("e")
        return f"{float(fraction):g}e{int(power)}".replace("-", "\N{MINUS SIGN}")
    unit = 1.0
    letter = ""
    for limit, name in reversed(UNITS):
        if size >= limit:
            unit = limit
            letter = name
    return f"{value / unit:.{digits}g}{letter}".replace("-", "\N{MINUS SIGN}")


def label(text: str) -> str:
    """Returns a name as pictures show it: printable and shortened."""
    return shortened(printable(text))
