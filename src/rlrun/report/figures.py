"""Pictures of a comparison. Drawn once by matplotlib: a PNG for slides, an SVG whose colours the page decides.

Each method has a colour, a dash and a marker, so that none has to be told by its colour alone.
"""

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from rlrun.report.compare import Cell, Comparison, rivals
from rlrun.report.statistics import improvement, improvement_interval, interval, iqm, mean, profile, profile_interval

# In the order of Okabe and Ito's hues, each dark enough for white paper; the page has their counterparts for black.
COLOURS = ("#0068b0", "#c8500a", "#00805a", "#a8478b", "#8a6d00", "#4a4fb5", "#5f6b73", "#0d8a9e")
INK, DIM, LINE, PAPER = "#1c2024", "#697077", "#dfe3e6", "#ffffff"
DASHES = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1.5, 1, 1.5)), (0, (8, 2)), (0, (2, 1)), (0, (6, 1, 1, 1, 1, 1)))
MARKERS = "osD^vPX*<>"
WIDTH = 9.0  # inches
THRESHOLDS = np.linspace(0, 1, 101)  # of normalised scores, in profiles
LINES = 400  # thin lines of single runs are drawn up to so many
PAIRS = 21  # of methods, in the picture of improvements; the table has all

STYLE: Any = {
    "font.family": "sans-serif", "font.size": 9.5, "axes.titlesize": 10, "axes.titleweight": "bold",
    "axes.titlelocation": "left", "axes.edgecolor": DIM, "axes.labelcolor": DIM, "axes.spines.top": False,
    "axes.spines.right": False, "axes.linewidth": 0.8, "axes.grid": True, "axes.axisbelow": True,
    "axes.facecolor": "none", "figure.facecolor": "none", "grid.color": LINE, "grid.linewidth": 0.8, "text.color": INK,
    "axes.titlecolor": INK, "xtick.color": DIM, "ytick.color": DIM, "xtick.major.size": 3, "ytick.major.size": 3,
    "legend.frameon": False, "svg.fonttype": "none", "svg.hashsalt": "rlrun", "text.parse_math": False,
    "path.simplify_threshold": 0.3,
}  # fmt: skip


class Picture:
    """A figure as SVG text for the page, and as PNG beside it."""

    def __init__(self, name: str, title: str, figure: Figure):
        self.name, self.title = name, title
        text = io.StringIO()
        figure.savefig(text, format="svg", bbox_inches="tight", pad_inches=0.05, metadata={"Date": None})
        self.svg = _themed(text.getvalue(), name, title)
        self._figure = figure

    def save(self, folder: Path) -> None:
        self._figure.savefig(folder / f"{self.name}.png", dpi=160, facecolor=PAPER, bbox_inches="tight", pad_inches=0.1)


class Look:
    """How each method looks."""

    def __init__(self, methods: list[str]):
        self.place = {name: index for index, name in enumerate(methods)}

    def colour(self, method: str) -> str:
        return COLOURS[self.place[method] % len(COLOURS)]

    def line(self, method: str) -> dict[str, Any]:
        return {"color": self.colour(method), "linestyle": DASHES[self.place[method] % len(DASHES)], "linewidth": 1.8}

    def dot(self, method: str) -> dict[str, Any]:
        return {"color": self.colour(method), "marker": MARKERS[self.place[method] % len(MARKERS)]}

    def legend(self, figure: Figure) -> None:
        handles = [Line2D([], [], label=name, markersize=5, **self.line(name) | self.dot(name)) for name in self.place]
        columns = max(1, min(6, len(handles), int(100 / (10 + max(map(len, self.place))))))
        figure.legend(handles=handles, loc="outside lower center", ncols=columns, handlelength=3.2)


def draw(comparison: Comparison, score: str) -> Iterator[Picture]:
    """All pictures, in the order of the page."""
    if not comparison.methods:
        return
    look = Look(comparison.methods)
    with mpl.rc_context(STYLE):
        if len(comparison.envs) > 1:
            yield Picture("overview", "Final scores over all environments, normalised", _overview(comparison, look))
        yield Picture("curves", "Learning curves", _curves(comparison, look, score))
        yield Picture("final", "Final score of every run", _final(comparison, look))
        if any(len(cell.counted) > 1 for cell in comparison):
            yield Picture("profile", "Performance profiles of normalised final scores", _profiles(comparison, look))
        if len(comparison.methods) > 1:
            yield Picture("improvement", "Probability of improvement", _improvements(comparison))


def _overview(comparison: Comparison, look: Look) -> Figure:
    methods = comparison.methods
    figure = Figure((WIDTH, 0.9 + 0.32 * len(methods)), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    for axis, (title, statistic, what) in zip(
        axes, (("IQM", iqm, "final"), ("Mean", mean, "final"), ("IQM of the best", iqm, "best")), strict=True
    ):
        for name in methods:
            strata = comparison.strata(name, what)
            centre, ends = float(statistic(np.hstack(strata))), interval(strata, statistic)
            _bar(axis, look.place[name], centre, ends, look.dot(name))
        axis.set(title=title, ylim=(len(methods) - 0.5, -0.5))
        axis.grid(axis="y", visible=False)
        axis.xaxis.set_major_locator(MaxNLocator(5))
    axes[0].set_yticks(range(len(methods)), methods)
    figure.supxlabel("normalised score", fontsize=9.5, color=DIM)
    return figure


def _curves(comparison: Comparison, look: Look, score: str) -> Figure:
    figure, axes = _panels(comparison, 2.35)
    singles = sum(len(cell.series) for cell in comparison) <= LINES
    for axis, env in zip(axes, comparison.envs, strict=True):
        for cell in comparison.on(env):
            if singles:
                _singles(axis, cell, look)
            low, high = cell.band
            axis.fill_between(cell.grid, low, high, color=look.colour(cell.method), alpha=0.16, linewidth=0)
            if len(cell.counted) > 1:
                axis.plot(cell.grid, cell.curves.mean(0), color=look.colour(cell.method), linewidth=0.8, alpha=0.6)
            axis.plot(cell.grid, cell.centre, **look.line(cell.method))
        axis.set(title=env)
        axis.margins(x=0.02)
        axis.xaxis.set_major_locator(MaxNLocator(4))
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    for axis in axes[-3:]:
        axis.set_xlabel("environment steps")
    figure.supylabel(score.replace("/", " ").replace("_", " "), fontsize=9.5, color=DIM)
    look.legend(figure)
    return figure


def _singles(axis: Any, cell: Cell, look: Look) -> None:
    for one in cell.series:
        keep = slice(None, None, max(1, len(one.steps) // cell.points))
        style = {"color": look.colour(cell.method), "linewidth": 0.6, "alpha": 0.3}
        axis.plot(one.steps[keep], one.values[keep], **style)


def _final(comparison: Comparison, look: Look) -> Figure:
    figure, axes = _panels(comparison, 0.75 + 0.27 * len(comparison.methods), sharey=True)
    for axis, env in zip(axes, comparison.envs, strict=True):
        for cell in comparison.on(env):
            place, dot = look.place[cell.method], look.dot(cell.method)
            axis.scatter(cell.final, np.full(len(cell.final), place + 0.22), s=11, alpha=0.6, linewidth=0, **dot)
            _bar(axis, place - 0.1, float(iqm(cell.final)), interval([cell.final]), dot)
        axis.set(title=env, ylim=(len(look.place) - 0.4, -0.6))
        axis.grid(axis="y", visible=False)
        axis.set_yticks(range(len(look.place)), [*look.place])
        axis.xaxis.set_major_locator(MaxNLocator(4))
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    figure.supxlabel("final score", fontsize=9.5, color=DIM)
    return figure


def _profiles(comparison: Comparison, look: Look) -> Figure:
    figure = Figure((WIDTH, 3.3), layout="constrained")
    axis = figure.subplots()
    for name in comparison.methods:
        strata = comparison.strata(name)
        low, high = profile_interval(strata, THRESHOLDS)
        axis.fill_between(THRESHOLDS, low, high, color=look.colour(name), alpha=0.13, linewidth=0)
        axis.plot(THRESHOLDS, profile(strata, THRESHOLDS), **look.line(name))
    axis.set(xlabel="normalised score", ylabel="fraction of runs above it", ylim=(-0.02, 1.02), xlim=(0, 1))
    look.legend(figure)
    return figure


def _improvements(comparison: Comparison) -> Figure:
    found = pairs(comparison)[:PAIRS]
    figure = Figure((WIDTH, 0.9 + 0.27 * max(1, len(found))), layout="constrained")
    axis = figure.subplots()
    for place, (_, _, chance, ends) in enumerate(found):
        _bar(axis, place, chance, ends, {"color": COLOURS[0], "marker": "o"})
    axis.axvline(0.5, color=DIM, linewidth=1, linestyle=(0, (4, 3)))
    axis.set_yticks(range(len(found)), [f"{x}  >  {y}" for x, y, *_ in found])
    axis.set(
        xlim=(-0.02, 1.02), ylim=(len(found) - 0.5, -0.5), xlabel="probability that a run of the first scores more"
    )
    axis.grid(axis="y", visible=False)
    return figure


def pairs(comparison: Comparison) -> list[tuple[str, str, float, tuple[float, float]]]:
    """(X, Y, P(X > Y), interval), the likelier winner first, the surest pairs first."""
    found = []
    for x, y in rivals(comparison):
        xs, ys = comparison.shared(x, y)
        if xs:
            if improvement(xs, ys) < 0.5:
                (x, xs), (y, ys) = (y, ys), (x, xs)
            found.append((x, y, improvement(xs, ys), improvement_interval(xs, ys)))
    return sorted(found, key=lambda pair: -pair[2])


def _panels(comparison: Comparison, height: float, **shared: Any) -> tuple[Figure, list[Any]]:
    """One panel for each environment, in rows of at most three."""
    count = len(comparison.envs)
    columns = min(count, 3)
    rows = -(-count // columns)
    figure = Figure((WIDTH, height * rows + 0.5), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **shared).ravel()
    for spare in axes[count:]:
        spare.set_visible(False)
    return figure, [*axes[:count]]


def _bar(axis: Any, place: float, centre: float, ends: tuple[Any, Any], dot: dict[str, Any]) -> None:
    """An interval as a pale bar with its estimate on it."""
    low, high = map(float, ends)
    if np.isfinite(low):
        axis.plot([low, high], [place, place], color=dot["color"], linewidth=5, alpha=0.3, solid_capstyle="butt")
    axis.plot([centre], [place], markersize=6, **dot)


def short(value: float) -> str:
    """About three digits: 1.5M, 20k, 0.25."""
    size = abs(value)
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= unit:
            return f"{value / unit:.3g}{letter}".replace("-", "\N{MINUS SIGN}")
    return f"{value:.3g}".replace("-", "\N{MINUS SIGN}")


def _themed(svg: str, name: str, title: str) -> str:
    """The <svg> alone: colours as the page's variables, ids of its own, one decimal."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    for index, colour in enumerate(COLOURS):
        svg = svg.replace(colour, f"var(--m{index})")
    for colour, variable in ((INK, "ink"), (DIM, "dim"), (LINE, "line"), (PAPER, "paper")):
        svg = svg.replace(colour, f"var(--{variable})")
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r'"[^"]*"', lambda attribute: re.sub(r"-?\d+\.\d{2,}", _rounded, attribute[0]), svg)
    svg = re.sub(r"font: ([\d.]+px|bold [\d.]+px|[\w ]*[\d.]+px) [^;\"]*", r"font: \1 var(--face)", svg)
    head = f'<svg role="img" aria-label="{title}" class="picture" '
    return re.sub(r'<svg ([^>]*?)width="[^"]*" height="[^"]*"|<svg ', head, svg, count=1)


def _rounded(number: re.Match[str]) -> str:
    return f"{float(number[0]):.1f}".removesuffix(".0")
