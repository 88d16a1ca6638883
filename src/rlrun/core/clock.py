"""Measures the seconds spent in each phase of a tick."""

import time


class Clock:
    """`lap(phase)` adds the time since the previous lap or `start` to that phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.last = time.perf_counter()

    def start(self) -> None:
        self.last = time.perf_counter()

    def lap(self, phase: str) -> None:
        now = time.perf_counter()
        self.seconds[phase] = self.seconds.get(phase, 0.0) + now - self.last
        self.last = now

    def drain(self) -> dict[str, float]:
        """Returns the seconds per phase since the last call, and resets them."""
        seconds, self.seconds = self.seconds, {}
        return seconds
