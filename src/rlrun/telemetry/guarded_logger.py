"""Calls loggers such that none can stop a run, and such that only local loggers can hold it up."""

import contextlib
import queue
import threading
from collections.abc import Callable
from dataclasses import replace

from rlrun.errors import RlrunError, reason
from rlrun.telemetry.logger import Logger, Start
from rlrun.telemetry.media import Medium
from rlrun.telemetry.metrics import Row

MOST_WAITING = 10_000  # rows and media that may wait for a logger's thread
FAULTS = (Exception, SystemExit)  # a library may call sys.exit
CLOSE_S = 30.0  # seconds that the end of a run waits for a logger's thread


class Guarded:
    """A logger that is turned off by its first error. `say` shows the line that reports the error."""

    def __init__(self, name: str, logger: Logger, say: Callable[[str], None]):
        self.name = name
        self._say = say
        self._logger: Logger | None = logger
        if not logger.local:
            self._logger = Background(name, logger)

    @property
    def is_on(self) -> bool:
        """Whether the logger has had no error so far."""
        return self._logger is not None

    def call(self, method: str, *given: object) -> None:
        """Calls a method of the logger, unless it is off."""
        if self._logger is None:
            return
        try:
            getattr(self._logger, method)(*given)
        except FAULTS as error:
            with contextlib.suppress(*FAULTS):
                self._logger.abandon()
            self._logger = None
            line = reason(error)
            if isinstance(error, RlrunError | ImportError | OSError):
                line = str(error)
            self._say(f"logger.{self.name} is off: {line}")


class Background(Logger):
    """Calls a logger in a thread of its own. Its lines are shown, and its error is raised, by the next call."""

    local = True

    def __init__(self, name: str, logger: Logger):
        self._logger = logger
        self._calls: queue.Queue[tuple[str, object]] = queue.Queue(MOST_WAITING)
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name=f"logger {name}", daemon=True)

    def open(self, start: Start) -> None:
        """Starts the thread, which opens the logger."""
        self._say = start.say
        self._put("open", replace(start, say=self._lines.put))
        self._thread.start()

    def row(self, row: Row) -> None:
        """Hands a row to the thread."""
        self._put("row", row)

    def media(self, medium: Medium) -> None:
        """Hands a medium to the thread."""
        self._put("media", medium)

    def close(self, summary: dict[str, object]) -> None:
        """Waits until the logger is closed. Raises TimeoutError if that takes more than CLOSE_S seconds."""
        self._put("close", summary)
        self._thread.join(CLOSE_S)
        if self._thread.is_alive():
            raise TimeoutError(f"it was not done {CLOSE_S:.0f} seconds after the end of the run")
        self._check()

    def _put(self, method: str, given: object) -> None:
        self._check()
        try:
            self._calls.put_nowait((method, given))
        except queue.Full:
            raise TimeoutError(f"it is {MOST_WAITING:,} rows behind the run") from None

    def _check(self) -> None:
        while not self._lines.empty():
            self._say(self._lines.get())
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        method = ""
        try:
            while method != "close":
                method, given = self._calls.get()
                getattr(self._logger, method)(given)
        except FAULTS as error:
            with contextlib.suppress(*FAULTS):
                self._logger.abandon()
            self._error = error
