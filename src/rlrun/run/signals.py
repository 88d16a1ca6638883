"""Stop signals: the first lets the tick finish and a snapshot be written; a second ends the process at once."""

import os
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any

from rlrun.core.interruptible import compiling
from rlrun.errors import ConfigError
from rlrun.operating_system import signals_of

REQUEUES = signals_of("SIGUSR1", "SIGUSR2")  # sent by schedulers, not by hand
CODES = dict.fromkeys(REQUEUES, 143) | {signal.SIGINT: 130, signal.SIGTERM: 143}


class Signals:
    """As a context manager, records stop signals instead of ending the process.

    At the end, earlier handlers are restored. Handlers of a scheduler's client, such as submitit, are then called for
    the signals received.

    A second signal ends the process at once. There is one exception: if a scheduler's client has installed handlers, a
    preempted job may receive both SIGTERM and the signal to requeue, in any order. Then only a repetition of the same
    signal ends the process, so that the snapshot can be written.
    """

    def __init__(self) -> None:
        self.all: list[signal.Signals] = []  # received signals, in the order of arrival
        self.earlier: dict[signal.Signals, Any] = {}

    @property
    def received(self) -> signal.Signals | None:
        """The first stop signal received, or None."""
        return next(iter(self.all), None)

    @property
    def exit_code(self) -> int:
        """The exit code for the first stop signal, or 0 if none was received."""
        if not self.all:
            return 0
        return CODES[self.all[0]]

    def __enter__(self) -> "Signals":
        self.earlier = {number: signal.signal(number, self._handle) for number in CODES}
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self.earlier.items():
            signal.signal(number, handler)
        compiling.interrupted = False
        for number in CODES:
            if number in self.all and foreign(self.earlier[number]):
                self.earlier[number](number, None)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        has_client = any(foreign(self.earlier.get(requeue)) for requeue in REQUEUES)
        if self.all and (number in self.all or not has_client):
            os._exit(CODES[signal.Signals(number)])
        self.all.append(signal.Signals(number))
        compiling.interrupt()


def check_thread() -> None:
    """Raises ConfigError outside of the main thread, in which alone Python receives signals."""
    thread = threading.current_thread()
    if thread is not threading.main_thread():
        raise ConfigError(
            f"{thread.name}: training needs the main thread of a process, which receives its stop signals; "
            "start a process, for example with multiprocessing"
        )


class Leave:
    """Signal handler before training begins: raises SystemExit with the signal's exit code, so `finally` blocks run."""

    number: signal.Signals | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.number = signal.Signals(number)
        sys.exit(CODES[self.number])


def foreign(handler: object) -> bool:
    """Returns whether a signal handler belongs to neither rlrun nor Python, but for example to a scheduler's client."""
    return callable(handler) and not isinstance(handler, Leave) and handler is not signal.default_int_handler
