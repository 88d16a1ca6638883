"""Shows progress as a panel that is redrawn in place."""

from typing import Any, Protocol

from rich.panel import Panel

from rlrun.telemetry.metrics import Row
from rlrun.telemetry.panel import Glyphs, Render, panel
from rlrun.telemetry.view import View, closing


class Surface(Protocol):
    """Where a panel is drawn: a terminal (`Screen`) or the output of a notebook's cell (`CellOutput`)."""

    @property
    def is_due(self) -> bool:
        """Whether the panel may be drawn again."""

    def draw(self, render: Render) -> None:
        """Draws the panel in place of the last one."""

    def message(self, text: str) -> None:
        """Prints a line outside of the panel."""

    def stop(self) -> None:
        """Leaves the panel as it is."""


class Live:
    """The display (`console.Display`) that shows a run as a panel on a surface."""

    def __init__(self, view: View, surface: Surface):
        self._view = view
        self._surface = surface

    def draw(self) -> None:
        self._surface.draw(self._panel)

    def row(self, row: Row) -> None:
        self._view.add(row)

    def progress(self, step: int) -> None:
        if self._surface.is_due:
            self._view.move(step)
            self.draw()

    def message(self, text: str) -> None:
        self._surface.message(text)

    def close(self, summary: dict[str, Any]) -> None:
        self._view.move(summary.get("step", self._view.step))
        self.draw()
        self._surface.stop()
        for line in closing(self._view, summary):
            self.message(line)

    def _panel(self, width: int, glyphs: Glyphs, colours: bool) -> Panel:
        return panel(self._view, width, glyphs, colours)
