"""Writes the log rows of a run to metrics.jsonl and TensorBoard, and shows them on the console."""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlrun.config import history
from rlrun.errors import ConfigError, printable
from rlrun.telemetry.board import Board
from rlrun.telemetry.console import Console, open_console
from rlrun.telemetry.metrics import MetricKeys, MetricsFile, Row, Written, ordered, read_rows

if TYPE_CHECKING:
    from rlrun.config.schema import LoggerConfig


class Telemetry:
    """Receives log rows and shows progress. With `from_step` > 0, a resume, rows after that step are deleted.

    written: number and hash of the rows that the snapshot recorded. If the rows on disk differ, `fault` says how.
    keys: the metric keys of the run's files, if an earlier version began the run; None: the current keys. The console
    always shows the current keys.
    """

    def __init__(
        self,
        run: Path,
        logger: "LoggerConfig",
        title: str,
        total_steps: int,
        from_step: int,
        written: Written | None = None,
        keys: MetricKeys | None = None,
    ):
        self._run = run
        self._keys = keys or MetricKeys(history.FORMAT, "")
        self._metrics = MetricsFile(run / "metrics.jsonl", from_step, written)
        self.fault = self._metrics.fault
        past = list(map(self._keys.current, self._metrics.past))
        self._console: Console = open_console(logger.console, title, run, total_steps, past)
        self._board: Board | None = None
        if logger.tensorboard:
            self._open_board(self._metrics.past)
        self._metrics.past.clear()
        self.times: dict[str, Any] = {}  # latest values of the metrics time/*
        self.progress = self._console.progress  # assigned directly, because it is called at every tick
        self.progress(from_step)

    def row(self, values: dict[str, Any]) -> None:
        """Writes one log row, which must have `step` and `wall_s`. Numbers that are not finite are left out.

        Raises RunError if metrics.jsonl cannot be written.
        """
        row = ordered(values)
        stored = self._keys.stored(row)
        self._metrics.append(stored)
        for key, value in row.items():
            if key.startswith("time/"):
                self.times[key] = value
        if self._board:
            self._write_to_board(self._board, stored)
        self._console.row(row)

    @property
    def written(self) -> Written:
        """Number and hash of the rows so far."""
        return self._metrics.written

    def message(self, text: str) -> None:
        """Shows a line to the user."""
        self._console.message(printable(text))

    def sync(self) -> None:
        """Waits until every row is on disk, which must be so before a snapshot is complete."""
        self._metrics.sync()

    def close(self, summary: dict[str, Any]) -> None:
        """Shows the last lines and closes all outputs. summary: the content of summary.json, or {} after a crash."""
        self._metrics.close()
        if self._board:
            with contextlib.suppress(OSError):
                self._board.close()
        self._console.close(summary)

    def _open_board(self, rows: list[Row]) -> None:
        """Opens TensorBoard's event file. If that fails, training continues without it: metrics.jsonl has all rows."""
        try:
            self._board = Board(self._run / "tb", rows)
        except (ImportError, OSError, ConfigError) as error:
            self._board = None
            self.message(f"TensorBoard is off: {error}")

    def _write_to_board(self, board: Board, row: Row) -> None:
        try:
            if not board.is_deleted:
                board.write(row)
                return
            board.close()
        except OSError as error:
            self._board = None
            self.message(f"TensorBoard is off: {error}")
            return
        self.message(f"{self._run / 'tb'} was deleted; it is written again from metrics.jsonl")
        self._open_board(read_rows(self._metrics.path))
