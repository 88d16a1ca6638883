"""Shows progress to the user: a live panel on a terminal, plain lines elsewhere, or nothing."""

import sys
from pathlib import Path
from typing import Protocol

from rlrun.settings import config, register
from rlrun.telemetry.formatting import clock, number
from rlrun.telemetry.logger import Logger, Start
from rlrun.telemetry.metrics import Row
from rlrun.telemetry.stdout import can_write, replace_unknown_letters, stdout_may_close, terminal_of_stdout
from rlrun.telemetry.view import View, closing, goals, warmup_steps

SHOWN = 4  # number of metrics at the end of a line, such as the rate of success


class Display(Protocol):
    """One form of the console. Its methods are those of `Logger`; rows have current metric keys."""

    def row(self, row: Row) -> None: ...
    def progress(self, step: int) -> None: ...
    def message(self, text: str) -> None: ...
    def close(self, summary: dict[str, object]) -> None: ...


class Lines:
    """Prints one aligned line per log row, without control codes, for log files and pipes."""

    def __init__(self, view: View):
        self._view = view
        self._plus_minus = "+/-"
        if can_write("±"):
            self._plus_minus = "±"

    def row(self, row: Row) -> None:
        self.message(self.line(row))

    def line(self, row: Row) -> str:
        """Adds a log row to the view and returns its line."""
        view = self._view
        view.add(row)
        view.move(row["step"])
        total = f"{view.total_steps:,}"
        speed = row.get("time/steps_per_s", view.speed)
        train = "-"
        if "train/return_mean" in row:
            train = number(row["train/return_mean"])
        parts = [
            f"{row['step']:>{len(total)},}/{total} {view.done:4.0%}",
            f"train {train:>8}",
            f"{speed:>6,.0f} steps/s",
            f"eta {clock(view.left_s(speed)):>7}",
        ]
        if "eval/return_mean" in row:
            mean = row["eval/return_mean"]
            std = row.get("eval/return_std", 0.0)
            parts.append(f"eval {number(mean)} {self._plus_minus} {number(std, like=mean)}")
        for name, value in goals(row)[:SHOWN]:
            parts.append(f"{name} {number(value)}")
        return "  ".join(parts)

    def progress(self, step: int) -> None:
        """Prints nothing."""

    def message(self, text: str) -> None:
        with stdout_may_close():
            print(text, flush=True)

    def close(self, summary: dict[str, object]) -> None:
        for line in closing(self._view, summary):
            self.message(line)


@register("logger", "console")
class Console(Logger):
    """A live panel on a terminal, and one line per row elsewhere. Shows current metric keys."""

    local = True
    display = True

    @config
    class Config:
        pass

    def open(self, start: Start) -> None:
        self._keys = start.keys
        past = [start.keys.current(row) for row in start.rows]
        title = start.title
        preset = start.config.get("preset")
        if preset:
            title = f"{title}, preset {preset}"
        warmup = warmup_steps(start.config)
        self._display = open_display(title, start.run, start.total_steps, past, warmup, start.total_updates)

    def row(self, row: Row) -> None:
        self._display.row(self._keys.current(row))

    def message(self, text: str) -> None:
        self._display.message(text)

    def progress(self, step: int) -> None:
        self._display.progress(step)

    def close(self, summary: dict[str, object]) -> None:
        self._display.close(summary)


def open_display(
    title: str, run: Path, total_steps: int, past: list[Row], warmup: int = 0, total_updates: int | None = None
) -> Display:
    """Returns the form of console that fits stdout. past: log rows before a resume, with current keys.

    warmup: steps before the first update. total_updates: updates after which the run ends, if it ends before its steps.
    """
    replace_unknown_letters()
    view = View(title, run, total_steps, past, warmup, total_updates)
    if "IPython" in sys.modules:
        from rlrun.telemetry.live import Live
        from rlrun.telemetry.notebook import CellOutput, in_notebook

        if in_notebook():
            live = Live(view, CellOutput())
            live.draw()  # before any message, because these are printed below the panel
            return live
    terminal = terminal_of_stdout()
    if terminal is not None:
        from rlrun.telemetry.live import Live
        from rlrun.telemetry.screen import Screen

        return Live(view, Screen(terminal))
    return Lines(view)
