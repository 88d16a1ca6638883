"""The output of a notebook's cell, in which a panel is updated in place."""

import io
import sys
import time
from typing import Any

from rich.console import Console as RichConsole

from rlrun.telemetry.panel import UNICODE, Render

WIDTH = 88  # columns of the panel
PERIOD_S = 1.0  # seconds between two updates
FONT = "font-family:Menlo,Consolas,'DejaVu Sans Mono',monospace; font-size:12px; line-height:1.3"
PAGE = f'<pre style="{FONT}">{{code}}</pre>'


def in_notebook() -> bool:
    """Returns whether a Jupyter kernel runs this process, which has imported IPython."""
    return type(sys.modules["IPython"].get_ipython()).__name__ == "ZMQInteractiveShell"


class CellOutput:
    """Shows a panel as HTML. Messages are printed below it."""

    def __init__(self) -> None:
        self._due = 0.0
        self._handle: Any = None  # of the output that holds the panel, once it has been drawn

    @property
    def is_due(self) -> bool:
        """Whether PERIOD_S has passed since the panel was drawn."""
        return time.monotonic() >= self._due

    def draw(self, render: Render) -> None:
        """Draws the panel, or updates it."""
        from IPython.display import display

        self._due = time.monotonic() + PERIOD_S
        picture = _html(render)
        if self._handle is None:
            self._handle = display(picture, display_id=True)
        else:
            self._handle.update(picture)

    def message(self, text: str) -> None:
        print(text, flush=True)

    def stop(self) -> None:
        """Does nothing: the output stays as it is."""


def _html(render: Render) -> object:
    """Returns a panel as HTML."""
    from IPython.display import HTML

    canvas = RichConsole(
        file=io.StringIO(),
        record=True,
        width=WIDTH,
        force_terminal=True,
        force_jupyter=False,
        color_system="truecolor",
    )
    canvas.print(render(WIDTH, UNICODE, True))
    return HTML(canvas.export_html(inline_styles=True, code_format=PAGE))
