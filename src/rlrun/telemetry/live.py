"""Shows progress on a terminal as a panel that is redrawn in place."""

from typing import Any

from rich.console import Console as RichConsole
from rich.panel import Panel

from rlrun.telemetry.metrics import Row
from rlrun.telemetry.panel import Glyphs, panel
from rlrun.telemetry.screen import Screen
from rlrun.telemetry.view import View, closing


class Live:
    """A panel at the bottom of the terminal, redrawn by `progress`. Messages scroll above the panel."""

    def __init__(self, view: View, terminal: RichConsole):
        self._view = view
        self._screen = Screen(terminal)

    def row(self, row: Row) -> None:
        self._view.add(row)

    def progress(self, step: int) -> None:
        if self._screen.is_due:
            self._view.move(step)
            self._screen.draw(self._panel)

    def message(self, text: str) -> None:
        self._screen.message(text)

    def close(self, summary: dict[str, Any]) -> None:
        self._view.move(summary.get("step", self._view.step))
        self._screen.draw(self._panel)
        self._screen.stop()
        for line in closing(self._view, summary):
            self.message(line)

    def _panel(self, width: int, glyphs: Glyphs, colours: bool) -> Panel:
        return panel(self._view, width, glyphs, colours)
