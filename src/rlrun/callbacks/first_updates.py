"""Base class of callbacks that measure an update now and then, because to measure all would take too long."""

from typing import TypedDict

from rlrun.core.callback import Callback
from rlrun.types import Batch, Context


class MeasuredUpdates(TypedDict):
    """The state of the callback."""

    due: bool
    rows: int


class FirstUpdates(Callback):
    """Measures the first update after a log row, for every row or every n-th."""

    every = 1  # rows

    def __init__(self, cfg: object = None):
        super().__init__(cfg)
        self.is_due = True  # whether the next update is measured
        self.rows = 0

    def measure(self, batch: Batch, ctx: Context) -> None:
        """Called before an update that is measured, with its batch."""
        raise NotImplementedError

    def on_row(self, row: object) -> None:
        self.rows += 1
        if self.rows % self.every == 0:
            self.is_due = True

    def on_update(self, batch: Batch, ctx: Context) -> None:
        if self.is_due:
            self.is_due = False
            self.measure(batch, ctx)

    def get_extra_state(self) -> MeasuredUpdates:
        return {"due": self.is_due, "rows": self.rows}

    def set_extra_state(self, state: MeasuredUpdates) -> None:
        self.is_due = bool(state["due"])
        self.rows = int(state["rows"])
