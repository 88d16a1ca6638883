"""Draws pictures as PNG files with matplotlib."""

import io
import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D

from rlrun.report.figures import (
    BAND,
    BAR,
    COLOURS,
    DASHES,
    LINE,
    MARKERS,
    MEAN,
    NAME,
    POINT,
    RUNS,
    SINGLE,
    Mark,
    Panel,
    Picture,
    label,
)
from rlrun.snapshot.atomic import replace_file

INK, DIM, GRID, PAPER = "#1c2024", "#697077", "#dfe3e6", "#ffffff"
WIDTH = 9.0  # inches
DPI, MOST_PIXELS = 160, 30_000  # resolution, and maximum pixels of the longer side; matplotlib fails above 65,535

STYLE: Any = {
    "font.family": "sans-serif", "font.size": 9.5, "axes.titlesize": 10, "axes.titleweight": "bold",
    "axes.titlelocation": "left", "axes.edgecolor": DIM, "axes.labelcolor": DIM, "axes.spines.top": False,
    "axes.spines.right": False, "axes.linewidth": 0.8, "axes.grid": True, "axes.axisbelow": True,
    "grid.color": GRID, "grid.linewidth": 0.8, "text.color": INK, "axes.titlecolor": INK, "xtick.color": DIM,
    "ytick.color": DIM, "xtick.major.size": 3, "ytick.major.size": 3, "legend.frameon": False,
    "text.parse_math": False, "figure.facecolor": PAPER,
}  # fmt: skip

LOOKS: dict[str, dict[str, object]] = {
    BAND: {"alpha": 0.16, "linewidth": 0},
    SINGLE: {"alpha": 0.3, "linewidth": 0.6},
    MEAN: {"alpha": 0.6, "linewidth": 0.8},
    BAR: {"alpha": 0.3, "linewidth": 5, "solid_capstyle": "butt"},
    LINE: {"linewidth": 1.8},
    RUNS: {"alpha": 0.6, "linestyle": "", "marker": "o", "markersize": 3, "markeredgewidth": 0},
    POINT: {"linestyle": "", "markersize": 6},
}


def save(picture: Picture, methods: Sequence[str], folder: Path) -> None:
    """Writes a picture to FOLDER/NAME.png. Raises OSError."""
    with mpl.rc_context(), warnings.catch_warnings():
        mpl.rcdefaults()  # ignores a matplotlibrc in the current folder
        mpl.rcParams.update(STYLE)
        warnings.simplefilter("ignore", UserWarning)  # about letters that the font does not have
        figure = _figure(picture, methods)
        dpi = min(DPI, MOST_PIXELS / max(figure.get_size_inches()))
        content = io.BytesIO()
        figure.savefig(content, format="png", dpi=dpi)
    replace_file(folder / f"{picture.name}.png", [content.getvalue()])


def _figure(picture: Picture, methods: Sequence[str]) -> Figure:
    """Returns a figure with at most three panels in a row, and a legend unless the panels show the methods' names."""
    panels = picture.panels
    columns = min(len(panels), 3)
    rows = math.ceil(len(panels) / columns)
    names = []
    if not panels[0].rows:
        names = list(map(label, methods))
    longest = max(map(len, names), default=0)
    across = min(6, len(methods), int(100 / (10 + longest)))  # as many entries as fit into a row of 100 letters
    height = rows * _height(panels) + 0.2 * (len(names) // across) + 0.5
    figure = Figure((WIDTH, height), layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08))
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis, panel in zip(axes, panels, strict=False):
        _panel(axis, panel)
    for axis in axes[max(0, len(panels) - columns) : len(panels)]:
        axis.set_xlabel(picture.x_label)
    for spare in axes[len(panels) :]:
        spare.set_visible(False)
    figure.supylabel(picture.y_label, fontsize=9.5, color=DIM)
    if names:
        figure.legend(handles=_handles(names), loc="outside lower center", ncols=across, handlelength=3.2)
    return figure


def _height(panels: Sequence[Panel]) -> float:
    """Returns the height of each panel, in inches."""
    most = max(panel.rows for panel in panels)
    if most:
        return 0.75 + 0.27 * most
    if len(panels) == 1:
        return 3.3
    return 2.35


def _panel(axis: Any, panel: Panel) -> None:
    for mark in panel.marks:
        if mark.kind == BAND:
            axis.fill(mark.x, mark.y, **_look(mark))
        elif mark.kind != NAME:
            axis.plot(mark.x, mark.y, **_look(mark))
    axis.set(title=label(panel.title), xlim=(panel.x.low, panel.x.high), ylim=(panel.y.low, panel.y.high))
    axis.set_xticks(panel.x.ticks, panel.x.labels)
    if panel.rows:
        names = [mark for mark in panel.marks if mark.kind == NAME]
        axis.set_yticks([mark.y[0] for mark in names], [label(mark.text) for mark in names])
        axis.grid(axis="y", visible=False)
    else:
        axis.set_yticks(panel.y.ticks, panel.y.labels)


def _look(mark: Mark) -> dict[str, object]:
    look = {"color": COLOURS[mark.index % len(COLOURS)], **LOOKS[mark.kind]}
    if mark.kind == LINE:
        look["linestyle"] = _dash(mark.index)
    if mark.kind == POINT:
        look["marker"] = MARKERS[mark.index % len(MARKERS)]
    return look


def _dash(index: int) -> object:
    """Returns the line style of a method for matplotlib. Its unit is the line width, so pixels are divided by 2."""
    dash = DASHES[index % len(DASHES)]
    if not dash:
        return "-"
    return 0, [part / 2 for part in dash]


def _handles(names: Sequence[str]) -> list[Line2D]:
    handles = []
    for index, name in enumerate(names):
        look: Any = {
            "color": COLOURS[index % len(COLOURS)],
            "marker": MARKERS[index % len(MARKERS)],
            "markersize": 5,
            "linestyle": _dash(index),
            "linewidth": 1.8,
        }
        handles.append(Line2D([], [], label=name, **look))
    return handles
