"""Draws panels as SVG. Positions are fractions of a panel and sizes are pixels, so text has the same size at any width.

Styles are in page.css. Marks have classes for their colour (`c2`), their method (`m11`) and their kind. Therefore the
page can have a light and a dark style, and can hide a method with one CSS rule.
"""

from html import escape

import numpy as np

from rlrun.report.figures import (
    BAND,
    COLOURS,
    DASHES,
    DOT,
    LABEL,
    LINE,
    MARKERS,
    NAME,
    POINT,
    RUNS,
    Mark,
    Panel,
    label,
)
from rlrun.report.names import printable
from rlrun.report.statistics import Array

SIDE = 4000  # width and height of the coordinate system for lines, in integers
HEIGHT, LONE_HEIGHT, ROW_HEIGHT = 210, 340, 40  # pixels

SHAPES = {
    "o": "M-4.3 0a4.3 4.3 0 1 0 8.6 0a4.3 4.3 0 1 0-8.6 0z",
    "s": "M-3.8-3.8h7.6v7.6h-7.6z",
    "D": "M0-5.2L5.2 0L0 5.2L-5.2 0z",
    "^": "M0-5L4.9 3.8H-4.9z",
    "v": "M0 5L4.9-3.8H-4.9z",
    "P": "M-1.8-5h3.6v3.2H5v3.6h-3.2V5h-3.6V1.8H-5v-3.6h3.2z",
    "X": "M-4.8-2.4l2.4-2.4L0-2.4l2.4-2.4l2.4 2.4L2.4 0l2.4 2.4l-2.4 2.4L0 2.4l-2.4 2.4l-2.4-2.4L-2.4 0z",
    "*": "M0-6l1.5 4.1l4.4.2l-3.4 2.8l1.1 4.2L0 2.9l-3.6 2.4l1.1-4.2l-3.4-2.8l4.4-.2z",
    "<": "M-5 0L3.8-4.9V4.9z",
    ">": "M5 0L-3.8-4.9V4.9z",
}


def shapes() -> str:
    """Returns the definitions of the markers, which a page needs once."""
    paths = "".join(f'<path id="k{index}" d="{SHAPES[name]}"/>' for index, name in enumerate(MARKERS))
    return f'<svg class="unseen" aria-hidden="true"><defs>{paths}</defs></svg>'


def swatch(index: int) -> str:
    """Returns line and marker of a method, for legends."""
    inside = f'<path class="line" d="M0 7H34"{_dash(index)}/>{_marker(index, "17", "7")}'
    return f'<svg class="swatch {_look(index)}" width="34" height="14" aria-hidden="true">{inside}</svg>'


def svg(panel: Panel, title: str, lone: bool, reading: int | None = None) -> str:
    """Returns a panel as SVG.

    lone: whether it is the only panel of its picture; it is drawn higher then. reading: index of the panel's curves in
    the page's readings.
    """
    height = HEIGHT
    if lone:
        height = LONE_HEIGHT
    if panel.rows:
        height = ROW_HEIGHT * panel.rows
    if panel.title:
        title = f"{title}: {panel.title}"
    name = _escaped(title)
    read = ""
    if reading is not None:
        read = f' data-reading="{reading}"'
    lines = []
    points = []
    names = []
    for mark in panel.marks:
        if mark.kind == POINT:
            points.append(_point(mark, panel))
        elif mark.kind == DOT:
            points.append(_dot(mark, panel))
        elif mark.kind in (NAME, LABEL):
            names.append(_text(mark, panel))
        else:
            lines.append(_path(mark, panel))
    area = f'<svg viewBox="0 0 {SIDE} {SIDE}" preserveAspectRatio="none">{"".join(lines)}</svg>'
    inside = [*_grid(panel), area, *points, *names]
    return f'<svg class="plot" height="{height}" role="img" aria-label="{name}"{read}>{"".join(inside)}</svg>'


def readings(panel: Panel, label: str) -> dict[str, object]:
    """Returns the curves of a panel as numbers, for the page's script: method, x, y, and both ends of the interval."""
    curves = []
    for mark in panel.marks:
        if mark.ends is not None:
            steps = [round(step, 3) for step in mark.x.tolist()]
            curves.append([mark.index, steps, *map(_numbers, (mark.y, *mark.ends))])
    return {
        "label": label,
        "x": [panel.x.low, panel.x.high],
        "log": panel.x.log,
        "y": [panel.y.low, panel.y.high],
        "curves": curves,
    }


def _numbers(values: Array) -> list[float | None]:
    """Returns values rounded to six digits, with None for NaN."""
    return list(map(_number, values))


def _number(value: float) -> float | None:
    if np.isnan(value):
        return None
    return float(f"{value:.6g}")


def _look(index: int, more: str = "") -> str:
    return f"c{index % len(COLOURS)} m{index} {more}".rstrip()


def _dash(index: int) -> str:
    dash = " ".join(map(str, DASHES[index % len(DASHES)]))
    if not dash:
        return ""
    return f' stroke-dasharray="{dash}"'


def _path(mark: Mark, panel: Panel) -> str:
    xs = (panel.x.share(mark.x) * SIDE).round().astype(int).tolist()
    ys = ((1 - panel.y.share(mark.y)) * SIDE).round().astype(int).tolist()
    points = [f"{x} {y}" for x, y in zip(xs, ys, strict=True)]
    path = "M" + "L".join(points)
    if mark.kind == RUNS:
        path = "".join(f"M{point}h0" for point in points)  # a line of length 0 with round ends is a dot
    if mark.kind == BAND:
        path += "z"
    dash = ""
    if mark.kind == LINE:
        dash = _dash(mark.index)
    look = f"{mark.kind} {_look(mark.index, mark.look)}"
    if mark.text:  # a wider path that is not seen makes it easy to point at a thin one
        return f'<g class="{look}"><path class="grab" d="{path}"/><path d="{path}"{dash}/>{_title(mark)}</g>'
    return f'<path class="{look}" d="{path}"{dash}/>'


def _title(mark: Mark) -> str:
    """Returns what the page shows next to the pointer."""
    if not mark.text:
        return ""
    return f"<title>{_escaped(mark.text)}</title>"


def _dot(mark: Mark, panel: Panel) -> str:
    x = _across(panel, float(mark.x[0]))
    y = _down(panel, float(mark.y[0]))
    return f'<circle class="dot {_look(mark.index, mark.look)}" cx="{x}" cy="{y}" r="3">{_title(mark)}</circle>'


def _point(mark: Mark, panel: Panel) -> str:
    marker = _marker(mark.index, _across(panel, float(mark.x[0])), _down(panel, float(mark.y[0])))
    return f'<g class="point {_look(mark.index, mark.look)}">{marker}{_title(mark)}</g>'


def _marker(index: int, x: str, y: str) -> str:
    return f'<use href="#k{index % len(MARKERS)}" x="{x}" y="{y}"/>'


def _text(mark: Mark, panel: Panel) -> str:
    y = _down(panel, float(mark.y[0]))
    text = escape(label(mark.text))
    if mark.kind == NAME:
        return f'<text class="name m{mark.index}" x="2" y="{y}" dy="-8">{text}</text>'
    return f'<text class="label {mark.look}" x="{_across(panel, float(mark.x[0]))}" y="{y}" dy="4">{text}</text>'


def _grid(panel: Panel) -> list[str]:
    """Returns the grid lines with their labels."""
    parts = []
    for tick, text in zip(panel.x.ticks, panel.x.labels, strict=True):
        x = _across(panel, tick)
        parts.append(f'<line x1="{x}" x2="{x}" y1="0" y2="100%"/>')
        parts.append(f'<text class="below" x="{x}" y="100%" dy="16">{_escaped(text)}</text>')
    for tick, text in zip(panel.y.ticks, panel.y.labels, strict=True):
        y = _down(panel, tick)
        parts.append(f'<line x1="0" x2="100%" y1="{y}" y2="{y}"/>')
        parts.append(f'<text class="beside" x="-7" y="{y}" dy="4">{_escaped(text)}</text>')
    return parts


def _escaped(text: str) -> str:
    return escape(printable(text))


def _across(panel: Panel, value: float) -> str:
    return _percent(panel.x.share(value))


def _down(panel: Panel, value: float) -> str:
    return _percent(1 - panel.y.share(value))


def _percent(share: Array | float) -> str:
    return f"{100 * float(share):.4g}%"
