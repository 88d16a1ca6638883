"""Log rows of a run: written to metrics.jsonl, and from there to TensorBoard and the console."""

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
    """Takes rows and shows progress. `from_step` > 0 continues a run: later rows are cut from every output.

    `written`: the rows that the snapshot recorded; `fault` says how those on disk differ.
    `keys`: those of the run's files, for a run that an earlier version may have begun; None: today's. The console
    always shows today's.
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
        self.times: dict[str, Any] = {}  # the newest values of time/...
        self.progress = self._console.progress  # called every tick: no layer in between
        self.progress(from_step)

    def row(self, values: dict[str, Any]) -> None:
        """Record one step value. Needs `step` and `wall_s`; non-finite numbers are left out. Raises RunError."""
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
        """The rows so far."""
        return self._metrics.written

    def message(self, text: str) -> None:
        """A line for the user."""
        self._console.message(printable(text))

    def sync(self) -> None:
        """Return once every row is on the disk: a snapshot guarantees the rows before it."""
        self._metrics.sync()

    def close(self, summary: dict[str, Any]) -> None:
        """Write the last lines and close all outputs. `summary` is that of summary.json; {} after a crash."""
        self._metrics.close()
        if self._board:
            with contextlib.suppress(OSError):
                self._board.close()
        self._console.close(summary)

    def _open_board(self, rows: list[Row]) -> None:
        """Training goes on without TensorBoard if that fails: the rows are in metrics.jsonl."""
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
