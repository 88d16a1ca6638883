"""A panel at the bottom of the terminal that is redrawn in place, with lines of text scrolling above it."""

import math
import sys
import time

from rich.console import Console as RichConsole
from rich.control import Control
from rich.live import Live as RichLive
from rich.segment import ControlType

from rlrun.telemetry.panel import PLAIN, UNICODE, Render
from rlrun.telemetry.stdout import can_write, stdout_may_close

PERIOD_S = 0.25  # least time between two drawings
REST = 100  # pause after a drawing, in multiples of its duration, so that drawing takes at most 1 % of the time


class Screen:
    """Draws a panel on a terminal. Callers draw it again when `is_due` is True.

    There is no thread that redraws it: a process with a single thread is simpler to fork, measure and stop.
    """

    def __init__(self, terminal: RichConsole):
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

    @property
    def is_due(self) -> bool:
        """Whether the panel may be drawn again; see PERIOD_S and REST."""
        return time.monotonic() >= self._due

    @property
    def height(self) -> int:
        """Lines of the terminal."""
        return self._terminal.height

    def draw(self, render: Render) -> None:
        """Draws the panel, whether it is due or not."""
        began = time.monotonic()
        with stdout_may_close():
            self._unwrap()
            width = self._terminal.width - len("^C")  # room for the echo of Ctrl-C, which would wrap the line
            panel = render(width, self._glyphs, not self._terminal.no_color)
            self._drawn = (panel.width or width, panel.height or 0)
            self._live.update(panel, refresh=True)
        now = time.monotonic()
        self._due = now + max(PERIOD_S, REST * (now - began))

    def message(self, text: str) -> None:
        """Prints a line above the panel."""
        with stdout_may_close():
            self._terminal.out(text, highlight=False)

    def stop(self) -> None:
        """Leaves the panel as it is. Further messages are printed below it."""
        with stdout_may_close():
            self._live.stop()

    def _unwrap(self) -> None:
        """Clears the extra lines that a terminal creates by wrapping the panel when it becomes narrower."""
        columns, lines = self._drawn
        extra = lines * (math.ceil(columns / self._terminal.width) - 1)
        if extra > 0:
            erase = (ControlType.ERASE_IN_LINE, 2)
            line_above = [(ControlType.CURSOR_UP, 1), erase]
            self._terminal.control(Control(ControlType.CARRIAGE_RETURN, erase, *(line_above * extra)))
