"""Writes the log rows of a run to metrics.jsonl, and hands them to the run's loggers."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from rlrun.errors import one_line, printable
from rlrun.formats import history
from rlrun.media import Histogram, Image, Video
from rlrun.telemetry.guarded_logger import Guarded
from rlrun.telemetry.logger import Logger, Start
from rlrun.telemetry.media import kept, store
from rlrun.telemetry.metrics import MetricKeys, MetricsFile, WrittenRows, ordered


class Telemetry:
    """Receives log rows and hands them to loggers. With `from_step` > 0, a resume, rows after that step are deleted.

    written: number and hash of the rows that the snapshot recorded. If the rows on disk differ, `fault` says how.
    keys: the metric keys of the run's files, if an earlier version began the run; None: the current keys.
    config, git_diff: as in `Start`.
    """

    def __init__(
        self,
        run: Path,
        loggers: Mapping[str, Logger],
        title: str,
        total_steps: int,
        from_step: int,
        written: WrittenRows | None = None,
        keys: MetricKeys | None = None,
        config: Mapping[str, object] | None = None,
        git_diff: Callable[[], str] = str,  # returns ""
        total_updates: int | None = None,
    ):
        self._run = run
        self._keys = keys or MetricKeys(history.FORMAT, "")
        self._metrics = MetricsFile(run / "metrics.jsonl", from_step, written)
        self.fault = self._metrics.fault
        self.times: dict[str, object] = {}  # latest values of the metrics time/*
        self._displays: list[Guarded] = []
        others: list[Guarded] = []
        for name, logger in loggers.items():
            guarded = Guarded(name, logger, self._say)
            if logger.display:
                self._displays.append(guarded)
            else:
                others.append(guarded)
        # displays are opened first and closed last, to show the errors of other loggers
        self._loggers = [*self._displays, *others]
        past = self._metrics.past
        self._metrics.past = []  # the loggers need them once, and they may be many
        start = Start(
            run=run, title=title, total_steps=total_steps, total_updates=total_updates, step=from_step, keys=self._keys,
            rows=past, media=kept(run, from_step), config=config or {}, git_diff=git_diff, say=self._say,
        )  # fmt: skip
        for guarded in self._loggers:
            guarded.call("open", start)
        self.progress(from_step)

    def row(self, values: dict[str, float]) -> None:
        """Writes one log row, which must have `step` and `wall_s`. Numbers that are not finite are left out.

        Raises RunError if metrics.jsonl cannot be written.
        """
        row = ordered(values)
        stored = self._keys.stored(row)
        self._metrics.append(stored)
        for key, value in row.items():
            if key.startswith("time/"):
                self.times[key] = value
        for logger in self._loggers:
            logger.call("row", stored)

    def media(self, step: int, name: str, value: Image | Video | Histogram) -> None:
        """Stores a value in RUN/media and hands it to the loggers. Shows a line if it cannot be stored."""
        try:
            medium = store(self._run, step, name, value)
        except Exception as error:  # the value comes from the user's code, and Pillow raises many exceptions
            self._say(f"{name} at step {step:,} is not stored: {one_line(error)}")
            return
        for logger in self._loggers:
            logger.call("media", medium)

    def progress(self, step: int) -> None:
        """Shows that the run is at `step`. Called after every tick."""
        for logger in self._displays:
            logger.call("progress", step)

    @property
    def written(self) -> WrittenRows:
        """Number and hash of the rows so far."""
        return self._metrics.written

    def message(self, text: str) -> None:
        """Shows a line to the user."""
        for logger in self._displays:
            logger.call("message", printable(text))

    def sync(self) -> None:
        """Waits until every row is on disk, which must be so before a snapshot is complete."""
        self._metrics.sync()

    def close(self, summary: dict[str, object]) -> None:
        """Shows the last lines and closes all outputs. summary: the content of summary.json, or {} after a crash."""
        self._metrics.close()
        for logger in reversed(self._loggers):
            logger.call("close", summary)

    def _say(self, line: str) -> None:
        """Shows a line of a logger, on stderr if no display is on."""
        if any(logger.is_on for logger in self._displays):
            self.message(line)
        else:
            print(printable(line), file=sys.stderr)
