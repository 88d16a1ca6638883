"""Shows progress on a terminal as a panel that is redrawn in place."""

import math
import sys
import time
from typing import Any

from rich.console import Console as RichConsole
from rich.control import Control
from rich.live import Live as RichLive
from rich.segment import ControlType

from rlrun.telemetry.console import can_write, muted_on_error
from rlrun.telemetry.metrics import Row
from rlrun.telemetry.panel import PLAIN, UNICODE, panel
from rlrun.telemetry.view import View, closing


class Live:
    """A panel at the bottom of the terminal, redrawn by `progress`. Messages scroll above the panel.

    The panel uses no thread: a process with a single thread is simpler to fork, measure and stop.
    """

    def __init__(self, view: View, terminal: RichConsole):
        self._view = view
        self._terminal = terminal
        self._glyphs = PLAIN
        if can_write("".join(UNICODE)):
            self._glyphs = UNICODE
        self._drawn = (0, 0)  # columns and lines of the panel when it was last drawn
        self._due = 0.0
        # rich must not capture stderr if the user has redirected it
        self._live = RichLive(console=terminal, auto_refresh=False, redirect_stderr=sys.stderr.isatty())
        self._live.start()
        terminal.show_cursor(True)  # rich hides the cursor, which would stay hidden after a SIGKILL

    def row(self, row: Row) -> None:
        self._view.see(row)

    def progress(self, step: int) -> None:
        if time.monotonic() >= self._due:
            self._view.move(step)
            self._draw()

    def message(self, text: str) -> None:
        with muted_on_error():
            self._terminal.out(text, highlight=False)

    def close(self, summary: dict[str, Any]) -> None:
        self._view.move(summary.get("step", self._view.step))
        self._draw()
        with muted_on_error():
            self._live.stop()
        for line in closing(self._view, summary):
            self.message(line)

    def _draw(self) -> None:
        began = time.monotonic()
        with muted_on_error():
            self._unwrap()
            width = self._terminal.width - len("^C")  # room for the echo of Ctrl-C, which would wrap the line
            picture = panel(self._view, width, self._glyphs, not self._terminal.no_color)
            self._drawn = picture.width or width, picture.height or 0
            self._live.update(picture, refresh=True)
        now = time.monotonic()
        self._due = now + max(0.25, 100 * (now - began))  # drawing takes at most 1 % of the time

    def _unwrap(self) -> None:
        """Clears the extra lines that a terminal creates by wrapping the panel when it becomes narrower."""
        columns, lines = self._drawn
        extra = lines * (math.ceil(columns / self._terminal.width) - 1)
        if extra > 0:
            up = ((ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2))
            self._terminal.control(Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2), *up * extra))
