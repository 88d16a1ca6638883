"""Shows a grid while it trains: one live table on a terminal, and lines elsewhere."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from rich.panel import Panel
from rich.text import Text

from rlrun.cli.grid import FAILED, IN_USE, STOPPED, TRAINING, WAITING, GridJob, GridProgress
from rlrun.errors import printable
from rlrun.report.runs import sound
from rlrun.telemetry.formatting import clock, number
from rlrun.telemetry.panel import Glyphs, aligned, bar, framed, inner_width, spread
from rlrun.telemetry.screen import Screen
from rlrun.telemetry.stdout import replace_unknown_letters, stdout_may_close, terminal_of_stdout

if TYPE_CHECKING:
    from rich.console import Console as RichConsole

HEADER = ("status", "progress", "step", "return", "best", "left", "job")
STYLES = {TRAINING: "cyan", IN_USE: "cyan", FAILED: "red", STOPPED: "red", "done": "green", WAITING: "dim"}
FRAME = 11  # lines of the terminal that hold no job: frame, progress, heading, other jobs, two above


class GridDisplay(Protocol):
    """Shows the progress of a grid: GridPanel on a terminal, GridLines elsewhere."""

    def started(self, job: GridJob) -> None:
        """Is called when a job has started."""

    def ended(self, job: GridJob) -> None:
        """Is called when a job has ended."""

    def message(self, text: str) -> None:
        """Shows a line."""

    def progress(self) -> None:
        """Is called often."""

    def close(self) -> None:
        """Is called once, when all jobs have ended, or after an interrupt or an error."""


class GridLines:
    """Prints lines without control codes, for log files and pipes."""

    def started(self, job: GridJob) -> None:
        self.message(f"{job.label}: {job.own_words}   output: {job.command.log}")

    def ended(self, job: GridJob) -> None:
        line = f"{job.label}: {job.status}"
        figures = sound(job.summary())
        if "step" in figures:
            line += f" at step {figures['step']:,}"
        if "final_return" in figures:
            line += f", return {number(figures['final_return'])}"
        self.message(line)

    def message(self, text: str) -> None:
        with stdout_may_close():
            print(printable(text), flush=True)

    def progress(self) -> None:
        """Prints nothing."""

    def close(self) -> None:
        """Prints nothing."""


class GridPanel:
    """A panel at the bottom of the terminal, with a row for each job. Lines scroll above it."""

    def __init__(self, grid: GridProgress, terminal: "RichConsole"):
        self._grid = grid
        self._screen = Screen(terminal)

    def started(self, job: GridJob) -> None:
        """Shows nothing, because the panel has a row for the job."""

    def ended(self, job: GridJob) -> None:
        job.read()

    def message(self, text: str) -> None:
        self._screen.message(printable(text))

    def progress(self) -> None:
        if self._screen.is_due:
            self._screen.draw(self._panel)

    def close(self) -> None:
        self._screen.draw(self._panel)
        self._screen.stop()

    def _panel(self, width: int, glyphs: Glyphs, colours: bool) -> Panel:
        for job in self._grid.training:
            job.read()  # while drawing, whose share of the time Screen limits
        return grid_panel(self._grid, width, self._screen.height, glyphs)


def open_grid_display(grid: GridProgress) -> GridDisplay:
    """Returns the display that fits stdout."""
    replace_unknown_letters()
    terminal = terminal_of_stdout()
    if terminal is None:
        return GridLines()
    return GridPanel(grid, terminal)


def grid_panel(grid: GridProgress, width: int, height: int, glyphs: Glyphs) -> Panel:
    """Returns a panel of at most `width` columns, with as many jobs as a terminal of `height` lines has room for.

    When all jobs have ended, it has no rows, because the table of the results follows.
    """
    inner = inner_width(width)
    lines = [*_grid_head(grid, inner, glyphs)]
    if any(job.is_open for job in grid.jobs):
        shown = _shown(grid.jobs, max(2, height - FRAME))
        lines += [Text(), *aligned([HEADER, *map(_cells, shown)], STYLES)]
        if len(shown) < len(grid.jobs):
            lines.append(Text(f"and {len(grid.jobs) - len(shown):,} other jobs", "dim"))
    folders = sorted({str(job.path.parent) for job in grid.jobs})
    return framed(lines, f"grid of {len(grid.jobs)} jobs", printable(", ".join(folders)), width, glyphs)


def _grid_head(grid: GridProgress, width: int, glyphs: Glyphs) -> Iterator[Text]:
    yield bar(grid.fraction_done, width, glyphs)
    ended = sum(not job.is_open for job in grid.jobs)
    counts = Text.assemble((f"{ended}", "bold"), (f" of {len(grid.jobs)} jobs", "dim"))
    if grid.failed:
        counts.append(f"   {grid.failed} failed", "red")
    left = clock(grid.left_s())
    times = Text.assemble(("elapsed ", "dim"), clock(grid.elapsed_s), ("   left ", "dim"), (left, "bold"))
    yield spread(counts, times, width)


def _shown(jobs: Sequence[GridJob], room: int) -> list[GridJob]:
    """Chooses at most `room` jobs: those that train now first, then failed and then other ended ones, both from the
    end of the grid, then waiting ones. Returns them in the order of the grid."""
    ended = [job for job in reversed(jobs) if not job.is_open]
    ranked = [job for job in jobs if job.status in (TRAINING, IN_USE)]
    ranked += sorted(ended, key=lambda job: job.status not in (FAILED, STOPPED))
    ranked += [job for job in jobs if job.status == WAITING]
    shown = {job.label for job in ranked[:room]}
    return [job for job in jobs if job.label in shown]


def _cells(job: GridJob) -> tuple[str, ...]:
    """Returns the cells of a job, one for each of HEADER."""
    if job.run is None:
        return (job.status, "", "", "", "", "", job.own_words)
    view = job.run.view
    latest, best, left = "", "", ""
    if found := view.eval or view.train:
        latest = number(found[-1])
    if view.best is not None:
        best = number(view.best[0])
    if job.status == TRAINING:
        left = clock(view.left_s(view.speed))
    return (job.status, f"{view.done:.0%}", f"{view.step:,}", latest, best, left, job.own_words)
