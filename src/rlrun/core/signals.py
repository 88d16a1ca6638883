"""Being asked to stop: the first signal lets the tick finish and a snapshot be written, the second leaves at once."""

import os
import signal
from types import FrameType, TracebackType
from typing import Any

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGUSR1: 143, signal.SIGUSR2: 143}


class Signals:
    """While entered, remembers the first stop signal. Afterwards earlier handlers are back, and called with it."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self.earlier: dict[signal.Signals, Any] = {}

    @property
    def exit_code(self) -> int:
        return 0 if self.received is None else CODES[self.received]

    def __enter__(self) -> "Signals":
        self.earlier = {number: signal.signal(number, self._handle) for number in CODES}
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self.earlier.items():
            signal.signal(number, handler)
        handler = self.earlier.get(self.received) if self.received else None
        if callable(handler) and handler is not signal.default_int_handler:
            handler(self.received, None)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            os._exit(CODES[signal.Signals(number)])
        self.received = signal.Signals(number)
