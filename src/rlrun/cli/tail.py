"""Implements `rlrun tail`, which prints the log rows of a run while they are written."""

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from rlrun import files
from rlrun.cli import settings
from rlrun.config.stored import not_a_run, read_stored
from rlrun.errors import PROGRAM, ConfigError, printable, quoted
from rlrun.lock import holder
from rlrun.report.runs import DONE, check_config, newest, sound
from rlrun.rundir import CONFIG, METRICS, RUNS, RunDir
from rlrun.telemetry.console import Lines
from rlrun.telemetry.metrics import MetricKeys, Row, parsed
from rlrun.telemetry.view import View, closing, warmup_steps

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
        raise ConfigError(f"{path}: {not_a_run(path)}")
    files.check_folder(path)
    _follow(path)
    return 0


class RecordedView(View):
    """A view whose time is that of the run, so that old rows show the speed with which they were written."""

    def now(self) -> float:
        return self.latest.get("wall_s", 0.0)


class FollowedRun:
    """A run that another process trains: its new rows, and a view of all rows."""

    def __init__(self, path: Path):
        """Raises ConfigError if the config of the run is missing or damaged."""
        self.path = path
        self._rows = NewRows(path / METRICS)
        self._open()

    def _open(self) -> None:
        """Reads the config of the run, and starts a view without rows."""
        stored = read_stored(self.path / CONFIG)
        config = stored.values
        check_config(config)
        self._keys = MetricKeys(stored.metrics_format, config["algo"]["name"])
        trainer = config["trainer"]
        title, updates = str(config.get("name")), trainer.get("total_updates")
        self.view = RecordedView(title, self.path, trainer["total_steps"], [], warmup_steps(config), updates)

    @property
    def step(self) -> int:
        """The step of the last row; -1 without rows."""
        return self._rows.step

    def read(self) -> Iterator[Row]:
        """Yields the new rows with the current names of their keys. The caller passes them to the view."""
        num_files = self._rows.num_files
        found = self._rows.read()
        if self._rows.num_files > num_files:  # the run was resumed, maybe with more steps and an earlier clock
            self._open()
        for row in found:
            yield sound(self._keys.current(row))


def _follow(path: Path) -> None:
    """Prints the rows of a run until its process ends, and then how the run ended."""
    run = FollowedRun(path)
    is_running = True
    while is_running:
        is_running = holder(path) is not None  # before reading, so that rows written just before the end are not missed
        for row in run.read():
            print(printable(Lines(run.view).line(row)), flush=True)
        if is_running:
            time.sleep(LOOK_EVERY_S)
    for line in _ending(path, run.view, run.step):
        print(printable(line))


def _ending(path: Path, view: View, step: int) -> list[str]:
    """Returns lines about the end of a run. step: step of its last row. A summary of an earlier step is outdated."""
    summary = RunDir.summary_of(path)
    status = summary.get("status")
    figures: dict[str, Any] = sound(summary)
    again = f"to continue: {PROGRAM} resume {quoted(path)}"
    if not isinstance(status, str) or figures.get("step", -1) < step:
        return [f"killed at step {max(0, step):,} or later; {again}"]
    lines = closing(view, {"status": status, **figures})
    if status == "failed":
        lines.append(f"for the reason see {path / 'error.log'}; {again}")
    elif status != DONE:
        lines.append(again)
    return lines


class NewRows:
    """Reads the rows of a metrics file that were added since the previous call.

    When a run resumes, it replaces the file and repeats some steps. Rows of steps that were read before are skipped.
    """

    def __init__(self, path: Path):
        self.path = path
        self.step = -1
        self.inode = 0
        self.position = 0
        self.num_files = 0  # number of files of this name that were read, one after another

    def read(self) -> list[Row]:
        """Returns the new rows. Returns [] if there is no file yet. Raises ConfigError if a line is too long."""
        try:
            descriptor = files.open_descriptor(self.path, limit=files.METRICS_BYTES)
        except FileNotFoundError:
            return []
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if status.st_ino != self.inode or status.st_size < self.position:
                self.inode = status.st_ino
                self.position = 0
                self.num_files += 1
            file.seek(self.position)
            lines = self._complete(file)
        self.position += sum(map(len, lines))
        rows = []
        for _, row in parsed(lines):
            if row["step"] > self.step:
                self.step = row["step"]
                rows.append(row)
        return rows

    def _complete(self, file: IO[bytes]) -> list[bytes]:
        """Returns the complete lines. A line that is being written is read by a later call."""
        lines = []
        while line := file.readline(files.ROW_BYTES + 1):
            if len(line) > files.ROW_BYTES:
                raise files.too_long(self.path)
            if not line.endswith(b"\n"):
                break
            lines.append(line)
        return lines
