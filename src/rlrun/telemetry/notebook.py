"""Shows progress in a notebook: the panel of the terminal, as an output that is updated in place."""

import io
import sys
import time
from typing import Any

from rich.console import Console as RichConsole

from rlrun.telemetry.metrics import Row
from rlrun.telemetry.panel import UNICODE, panel
from rlrun.telemetry.view import View, closing

WIDTH = 88  # columns of the panel
PERIOD_S = 1.0  # seconds between two updates
FONT = "font-family:Menlo,Consolas,'DejaVu Sans Mono',monospace; font-size:12px; line-height:1.3"
PAGE = f'<pre style="{FONT}">{{code}}</pre>'


def in_notebook() -> bool:
    """Returns whether a Jupyter kernel runs this process. Does not import IPython."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return type(shell).__name__ == "ZMQInteractiveShell"


class Notebook:
    """A panel in the output of the cell. Messages are printed below it."""

    def __init__(self, view: View):
        from IPython.display import display

        self._view = view
        self._due = time.monotonic() + PERIOD_S
        self._handle = display(self._picture(), display_id=True)

    def row(self, row: Row) -> None:
        self._view.add(row)

    def progress(self, step: int) -> None:
        now = time.monotonic()
        if now >= self._due:
            self._due = now + PERIOD_S
            self._view.move(step)
            self._handle.update(self._picture())

    def message(self, text: str) -> None:
        print(text, flush=True)

    def close(self, summary: dict[str, Any]) -> None:
        self._view.move(summary.get("step", self._view.step))
        self._handle.update(self._picture())
        for line in closing(self._view, summary):
            self.message(line)

    def _picture(self) -> object:
        """Returns the panel as HTML."""
        from IPython.display import HTML

        canvas = RichConsole(
            file=io.StringIO(),
            record=True,
            width=WIDTH,
            force_terminal=True,
            force_jupyter=False,
            color_system="truecolor",
        )
        canvas.print(panel(self._view, WIDTH, UNICODE, True))
        return HTML(canvas.export_html(inline_styles=True, code_format=PAGE))
