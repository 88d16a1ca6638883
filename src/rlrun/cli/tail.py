"""Implements `rlrun tail`, which prints the log rows of a run while they are written."""

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from rlrun import files
from rlrun.cli import settings
from rlrun.config.stored import read_stored
from rlrun.errors import ConfigError, printable
from rlrun.lock import holder
from rlrun.report.runs import check_config, newest, sound
from rlrun.rundir import CONFIG, METRICS, RUNS, RunDir
from rlrun.telemetry.console import Lines
from rlrun.telemetry.metrics import MetricKeys, Row, parsed
from rlrun.telemetry.view import View, closing

USAGE = "rlrun tail [RUN]"
HELP = f"""\
usage: {USAGE}

Prints one line for each log row of a run, first the rows so far, then new ones as they are written. Ends when the run
ends; Ctrl-C ends it earlier and does not affect the run. Default: the run below runs/ that was written last."""

LOOK_EVERY_S = 0.5


def tail(words: Sequence[str]) -> int:
    """Runs the command. Returns the exit code."""
    if "--help" in words or "-h" in words:
        print(HELP)
        return 0
    places, _ = settings.read(words, {})
    if places:
        path = Path(settings.one_run(places, USAGE))
    else:
        found = newest(RUNS)
        if found is None:
            raise ConfigError(f"no run below {RUNS}/; usage: {USAGE}")
        path = found
        print(printable(path), flush=True)
    if not (path / CONFIG).is_file():
        raise ConfigError(f"{path}: not a run (it has no {CONFIG})")
    _follow(path)
    return 0


class RecordedView(View):
    """A view whose time is that of the run, so that old rows show the speed with which they were written."""

    def now(self) -> float:
        return self.latest.get("wall_s", 0.0)


def _follow(path: Path) -> None:
    """Prints the rows of a run until its process ends, and then how the run ended."""
    stored = read_stored(path / CONFIG)
    config = stored.values
    check_config(config)
    keys = MetricKeys(stored.metrics_format, config["algo"]["name"])
    view = RecordedView(str(config.get("name")), path, config["trainer"]["total_steps"], [])
    lines, rows = Lines(view), NewRows(path / METRICS)
    is_running = True
    while is_running:
        is_running = holder(path) is not None  # before the rows are read, so that none of a run that ends is missed
        for row in rows.read():
            print(printable(lines.line(sound(keys.current(row)))), flush=True)
        if is_running:
            time.sleep(LOOK_EVERY_S)
    for line in _ending(path, view, rows.step):
        print(printable(line))


def _ending(path: Path, view: View, step: int) -> list[str]:
    """Returns lines about the end of a run. step: step of its last row; a summary of an earlier step is outdated."""
    summary = RunDir.summary_of(path)
    figures: dict[str, Any] = sound(summary)
    if isinstance(summary.get("status"), str) and figures.get("step", -1) >= step:
        return closing(view, {"status": summary["status"], **figures})
    return [f"killed at step {max(0, step):,} or later; to continue: rlrun resume {path}"]


class NewRows:
    """Reads the rows of a metrics file that were added since the previous call.

    A resume replaces the file and repeats some steps; rows up to the last step that was read are skipped then.
    """

    def __init__(self, path: Path):
        self.path = path
        self.step = -1
        self.inode, self.position = 0, 0

    def read(self) -> Iterator[Row]:
        """Yields the new rows. Yields nothing if there is no file yet."""
        try:
            descriptor = files.open_file(self.path, limit=files.METRICS_BYTES)
        except FileNotFoundError:
            return
        with open(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if found.st_ino != self.inode or found.st_size < self.position:
                self.inode, self.position = found.st_ino, 0
            file.seek(self.position)
            for _, row in parsed(self._lines(file)):
                if type(row["step"]) is int and row["step"] > self.step:
                    self.step = row["step"]
                    yield row

    def _lines(self, file: IO[bytes]) -> Iterator[bytes]:
        """Yields complete lines, so that a line that is being written is read by a later call."""
        while (line := file.readline(files.ROW_BYTES)).endswith(b"\n"):
            self.position += len(line)
            yield line
