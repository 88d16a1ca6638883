"""Draws the view of a sweep as a panel with rich, like the panel of a run."""

from collections.abc import Iterator
from textwrap import wrap

from rich.panel import Panel
from rich.text import Text

from rlrun.sweep.standings import values_text
from rlrun.sweep.view import SweepView, table
from rlrun.telemetry.formatting import clock, number
from rlrun.telemetry.panel import LABEL, Glyphs, aligned, bar, framed, inner_width, labelled, spread

MOST = 8  # maximum number of trials that train now, and maximum number of best trials
FRAME = 9  # lines for the frame, for the header, and for the messages above the panel
STYLES = {"training": "cyan", "fresh seeds": "cyan", "failed": "red", "winner": "green"}


def panel(view: SweepView, width: int, height: int, glyphs: Glyphs) -> Panel:
    """Returns a panel of at most `width` columns, with as many trials as a terminal of `height` lines has room for."""
    inner = inner_width(width)
    lines = [*_head(view, inner, glyphs), Text(), *_best(view, inner), *_counts(view, inner)]
    room = max(2, height - len(lines) - FRAME)
    working = view.working[: min(MOST, room)]
    shown = {one.number for one in working}
    best = [one for one in view.best if one.number not in shown][: min(MOST, room - len(working))]
    if working or best:
        rows = table([*working, *best], view.trials, view.names, {job.trial for job in view.running})
        lines += [Text(), *aligned(rows, STYLES)]
    return framed(lines, view.title, view.place, width, glyphs)


def _head(view: SweepView, width: int, glyphs: Glyphs) -> Iterator[Text]:
    yield bar(view.fraction_done, width, glyphs)
    trials = Text.assemble((f"{len(view.trials)}", "bold"), (f" of {view.planned} trials", "dim"))
    left = clock(view.left_s)
    if view.left_s is not None:
        left = f"about {left}"
    times = Text.assemble(("elapsed ", "dim"), clock(view.elapsed_s), ("   left ", "dim"), (left, "bold"))
    if len(trials) + len(times) + 2 > width:
        yield trials
        yield times
    else:
        yield spread(trials, times, width)


def _best(view: SweepView, width: int) -> Iterator[Text]:
    """Yields the winner or the best trial so far, with its values on the next lines."""
    if not view.best:
        return
    best = view.best[0]
    remark = "so far"
    if view.trials.winner is not None:
        best = view.standings[view.trials.winner]
        remark = "is the winner"
    score = best.score
    if best.fresh is not None:
        score = best.fresh
        remark = f"on {best.trial.fresh_seeds} fresh seeds"
    yield (
        labelled("best")
        .append(number(score or 0.0), "green")
        .append(f"  trial {best.number}", "bold")
        .append(f"   {remark}", "dim")
    )
    for text in wrap(values_text(best.trial.values, view.names), max(1, width - LABEL)):
        yield labelled("").append(text)


def _counts(view: SweepView, width: int) -> Iterator[Text]:
    line = labelled("runs").append(f"{view.totals.runs - view.totals.failed} done").append("   ")
    line.append(f"{view.open_jobs} open")
    if view.totals.failed:
        line.append("   ").append(f"{view.totals.failed} failed", "red")
    trained = Text.assemble((f"{view.totals.steps:,}", "bold"), (" steps", "dim"))
    if view.forecast.speed:
        trained.append(f"   {number(view.forecast.speed)} steps/s per worker", "dim")
    yield spread(line, trained, width)
