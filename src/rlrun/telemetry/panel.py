"""Draws a View as a panel with rich, in the sixteen colours of the terminal's theme."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rich.box import ASCII, ROUNDED
from rich.panel import Panel
from rich.text import Text

from rlrun.telemetry.formatting import clock, memory, number
from rlrun.telemetry.view import View, goals

MAX_WIDTH = 100
LABEL = 8  # width of the labels on the left, in columns
SHARES = {"env": "blue", "act": "cyan", "sample": "magenta", "update": "green", "log": "yellow"}


class Glyphs(NamedTuple):
    """The characters that a panel is drawn with."""

    fill: str
    tip: str
    rest: str
    ramp: str  # heights of a sparkline, low to high, without the full block, which would touch the line above
    block: str  # bar of the fractions of time
    plus_minus: str
    cut: str


Render = Callable[[int, Glyphs, bool], Panel]  # (columns, glyphs, whether there are colours) -> the panel

UNICODE = Glyphs("━", "╾", "─", "▁▂▃▄▅▆▇", "━", "±", "…")
PLAIN = Glyphs("=", ">", "-", "_.-:=+*#", "#", "+/-", "~")


def panel(view: View, width: int, glyphs: Glyphs, colours: bool) -> Panel:
    """Returns a panel of at most `width` columns that shows `view`. Lines without data are left out."""
    inner = inner_width(width)
    lines = [
        *_head(view, inner, glyphs),
        Text(),
        *_returns(view, inner, glyphs),
        *_goals(view, inner),
        *_losses(view, inner),
    ]
    lines += [Text(), *_speed(view, inner), *_time(view, inner, glyphs, colours)]
    return framed(lines, view.title, view.run, width, glyphs)


def inner_width(width: int) -> int:
    """Returns the columns of the lines in a frame, on a terminal of `width` columns."""
    return min(max(width, 8), MAX_WIDTH) - 6


def framed(lines: list[Text], title: str, place: str, width: int, glyphs: Glyphs) -> Panel:
    """Returns lines in a frame of at most `width` columns, with `title` above and the end of a path below."""
    inner = inner_width(width)
    for line in lines:
        line.truncate(inner)
    box = ROUNDED
    if glyphs is PLAIN:
        box = ASCII
    if len(place) > inner - 2:
        place = glyphs.cut + place[-max(1, inner - 3) :]
    return Panel(
        Text("\n").join(lines),
        box=box,
        title=Text(title, style="not dim bold"),
        title_align="left",
        subtitle=Text(place, style="dim"),
        subtitle_align="right",
        border_style="dim",
        padding=(1, 2),
        width=inner + 6,
        height=len(lines) + 4,
    )


def _head(view: View, width: int, glyphs: Glyphs) -> Iterable[Text]:
    yield bar(view.done, width, glyphs)
    steps = Text.assemble((f"{view.step:,}", "bold"), (f" of {view.total_steps:,} steps", "dim"))
    left = clock(view.left_s(view.speed))
    times = Text.assemble(("elapsed ", "dim"), clock(view.elapsed_s), ("   left ", "dim"), (left, "bold"))
    yield spread(steps, times, width)


def bar(done: float, width: int, glyphs: Glyphs) -> Text:
    """Returns a bar with its percentage. done: 0 to 1."""
    percent = f"{done:6.1%}"
    cells = max(1, width - len(percent) - 1)
    full = int(done * cells)
    if full == cells:
        tip = ""
    elif full:
        tip = glyphs.tip
    else:
        tip = glyphs.rest
    rest = glyphs.rest * (cells - full - 1)
    return Text.assemble((glyphs.fill * full + tip, "cyan"), (rest, "dim"), (f" {percent}", "bold"))


def _returns(view: View, width: int, glyphs: Glyphs) -> Iterable[Text]:
    """Yields two aligned lines, for training and evaluation: value, sparkline, and a remark on the right."""
    rows = [
        ("train", _train(view), view.train, "cyan", _episodes(view)),
        ("eval", _evaluation(view, glyphs), view.eval, "green", _best(view)),
    ]
    text_widths = [len(text) for _, text, _, _, _ in rows]
    remark_widths = [len(remark) for _, _, _, _, remark in rows]
    text_width = max(12, *text_widths)
    curve_width = width - LABEL - text_width - max(remark_widths) - 5  # without the gaps of 3 and 2 columns around it
    for name, text, history, colour, remark in rows:
        text.pad_right(text_width - len(text) + 3)
        if curve_width >= 8:
            text.append(_sparkline(list(history)[-curve_width:], glyphs.ramp), f"not bold {colour}")
        yield spread(Text.assemble(labelled(name), text), remark, width)


def _train(view: View) -> Text:
    if not view.train:
        return Text()
    return Text(number(view.train[-1]), style="bold")


def _evaluation(view: View, glyphs: Glyphs) -> Text:
    if not view.eval:
        return Text()
    mean = view.eval[-1]
    std = view.latest.get("eval/return_std", 0.0)
    text = Text(number(mean), style="bold")
    return text.append(f" {glyphs.plus_minus} {number(std, like=mean)}", "not bold dim")


def _episodes(view: View) -> Text:
    count = view.latest.get("train/episodes")
    if count is None:
        return Text()
    noun = "episodes"
    if count == 1:
        noun = "episode"
    return Text(f"{count:,.0f} {noun}", style="dim")


def _best(view: View) -> Text:
    if view.best is None:
        return Text()
    value, step = view.best
    return Text.assemble(("best ", "dim"), (number(value), "green"), (f" at {step:,}", "dim"))


def _goals(view: View, width: int) -> Iterable[Text]:
    """Yields a line with the rate of success and as many of the user's metrics as fit."""
    yield from _metrics("goal", goals(view.latest), width)


def _losses(view: View, width: int) -> Iterable[Text]:
    """Yields a line with as many losses as fit, in the order of their keys in the log row."""
    losses = [(key.removeprefix("loss/"), value) for key, value in view.latest.items() if key.startswith("loss/")]
    yield from _metrics("loss", losses, width)


def _metrics(label: str, metrics: Iterable[tuple[str, float]], width: int) -> Iterable[Text]:
    """Yields a line with as many metrics as fit, none without metrics."""
    line = labelled(label)
    for name, value in metrics:
        metric = Text.assemble((f"{name} ", "dim"), number(value))
        if len(line) + len(metric) > width:
            break
        line.append(metric).append("   ")
    if len(line) > LABEL:
        yield line


def _speed(view: View, width: int) -> Iterable[Text]:
    latest = view.latest
    line = labelled("speed")
    line.append(number(latest.get("time/steps_per_s", view.speed))).append(" steps/s   ", "dim")
    if "time/updates_per_s" in latest:
        line.append(number(latest["time/updates_per_s"])).append(" updates/s   ", "dim")
    used = Text()
    if "sys/rss_mb" in latest:
        used.append("memory ", "dim").append(memory(latest["sys/rss_mb"]))
    if latest.get("sys/gpu_mb"):
        used.append("   gpu ", "dim").append(memory(latest["sys/gpu_mb"]))
    yield spread(line, used, width)


def _time(view: View, width: int, glyphs: Glyphs, colours: bool) -> Iterable[Text]:
    """Yields a line with a stacked bar of the fractions of wall time; without colours, the bar consists of initials."""
    names = []
    shares = {}
    for name, colour in SHARES.items():
        share = view.latest.get(f"time/share_{name}", 0.0)
        if share:
            shares[name] = share
            names.append(Text.assemble((name, colour), f" {share:.0%}"))
    if not shares:
        return
    legend = Text("  ").join(names)
    cells = width - LABEL - len(legend) - 3
    line = labelled("time")
    if cells < 8:
        yield line + legend
        return
    total = 0.0  # share of the time up to the end of a block
    drawn = 0  # cells of the bar so far
    for name, share in shares.items():
        block = name[0]
        if colours:
            block = glyphs.block
        total += share
        end = min(cells, round(total * cells))
        line.append(block * (end - drawn), SHARES[name])
        drawn = max(drawn, end)
    yield spread(line, legend, width)


def aligned(rows: Sequence[Sequence[str]], styles: Mapping[str, str]) -> Iterator[Text]:
    """Yields the lines of a table, without columns that are empty below the header. styles: of cells, by their text."""
    columns = [column for column in zip(*rows, strict=True) if any(column[1:])]
    widths = [max(map(len, column)) for column in columns]
    for index, row in enumerate(zip(*columns, strict=True)):
        line = Text()
        for cell, width in zip(row, widths, strict=True):
            style = styles.get(cell, "")
            if index == 0:
                style = "dim"
            line.append(f"{cell:{width}}  ", style)
        yield line


def labelled(name: str) -> Text:
    """Returns the label at the left of a line."""
    return Text.assemble((name.ljust(LABEL), "dim"))


def _sparkline(values: list[float], ramp: str) -> str:
    """Returns one character of `ramp` for each value, scaled from the lowest to the highest value."""
    low = min(values, default=0.0)
    high = max(values, default=0.0)
    top = len(ramp) - 1
    if low == high:
        return ramp[top // 2] * len(values)
    return "".join(ramp[round((value - low) / (high - low) * top)] for value in values)


def spread(left: Text, right: Text, width: int) -> Text:
    """Returns a line with `left` and `right` at its ends, or `left` alone if both do not fit."""
    gap = width - len(left) - len(right)
    if gap < 2:
        return left
    return Text.assemble(left, " " * gap, right)
