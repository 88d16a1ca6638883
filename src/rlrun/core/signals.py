"""Being asked to stop: the first signal lets the tick finish and a snapshot be written, the second leaves at once."""

import os
import signal
from types import FrameType, TracebackType
from typing import Any

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGUSR1: 143, signal.SIGUSR2: 143}


class Signals:
    """While entered, remembers stop signals. Afterwards earlier handlers are back, and called with them.

    A second signal leaves at once, unless somebody else (a scheduler's client) waits for it: a job that is preempted
    may get SIGTERM and its requeue signal together.
    """

    def __init__(self) -> None:
        self.all: list[signal.Signals] = []  # in their order
        self.earlier: dict[signal.Signals, Any] = {}

    @property
    def received(self) -> signal.Signals | None:
        return self.all[0] if self.all else None

    @property
    def exit_code(self) -> int:
        return CODES[self.all[0]] if self.all else 0

    def __enter__(self) -> "Signals":
        self.earlier = {number: signal.signal(number, self._handle) for number in CODES}
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self.earlier.items():
            signal.signal(number, handler)
        for number in self.all:
            if self._awaited(number):
                self.earlier[number](number, None)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        number = signal.Signals(number)
        if self.all and (number in self.all or not self._awaited(number)):
            os._exit(CODES[number])
        self.all.append(number)

    def _awaited(self, number: signal.Signals) -> bool:
        handler = self.earlier.get(number)
        return callable(handler) and handler is not signal.default_int_handler
