"""The state of a run that a console shows, and its formatting as short texts. Independent of any terminal."""

import time
from collections import deque
from pathlib import Path

from rlrun.errors import printable
from rlrun.telemetry.metrics import Row

HISTORY = 40  # number of values kept for a sparkline
LONGEST_S = 1e10  # about 300 years; a longer time is not shown
WINDOW_S = 60.0  # seconds over which the current speed is measured


class View:
    """The latest value of every key, short histories of returns, the best evaluation, and the current speed."""

    def __init__(self, title: str, run: Path, total_steps: int, past: list[Row]):
        """past: the log rows from before a resume."""
        self.title = printable(title)
        self.run = printable(run)
        self.total_steps = total_steps
        self.speed = 0.0  # steps per second over the window
        self.latest: Row = {}
        self.train: deque[float] = deque(maxlen=HISTORY)
        self.eval: deque[float] = deque(maxlen=HISTORY)
        self.best: tuple[float, int] | None = None  # mean evaluation return, its step
        for row in past:
            self.add(row)
        self._earlier_s: float = self.latest.get("wall_s", 0.0)
        self._started = self.now()
        self.step: int = self.latest.get("step", 0)
        self._marks = deque([(self._started, self.step)])

    def now(self) -> float:
        """Returns the seconds of a clock that begins anywhere."""
        return time.monotonic()

    def add(self, row: Row) -> None:
        """Adds a log row."""
        self.latest.update(row)
        if "train/return_mean" in row:
            self.train.append(row["train/return_mean"])
        if "eval/return_mean" in row:
            self.eval.append(row["eval/return_mean"])
            if self.best is None or self.eval[-1] > self.best[0]:
                self.best = self.eval[-1], row["step"]

    def move(self, step: int) -> None:
        """Records that the run is at `step` now, and updates the speed."""
        now = self.now()
        if step <= self.step:
            return
        self.step = step
        if now <= self._marks[-1][0]:  # no time has passed, so there is no speed
            return
        self._marks.append((now, step))
        while len(self._marks) > 2 and self._marks[0][0] < now - WINDOW_S:
            self._marks.popleft()
        start, start_step = self._marks[0]
        self.speed = (step - start_step) / (now - start)

    @property
    def elapsed_s(self) -> float:
        """Seconds of training so far, including those before a resume."""
        return self._earlier_s + self.now() - self._started

    def left_s(self, speed: float) -> float | None:
        """Returns the remaining seconds at this speed (steps per second), or None if the speed is 0 (unknown)."""
        if speed <= 0:
            return None
        return max(0, self.total_steps - self.step) / speed

    @property
    def done(self) -> float:
        """The fraction of steps done, 0 to 1."""
        return min(1.0, self.step / max(1, self.total_steps))


def number(value: float, like: float | None = None) -> str:
    """Formats a number with about four digits and a thousands separator.

    like: the number whose size decides how many decimals there are, by default `value` itself.
    """
    if like is None:
        like = value
    magnitude = abs(like)
    if magnitude >= 1e8 or 0 < magnitude < 5e-4:
        return f"{value:.2e}"
    decimals = 3
    for limit in (10, 100, 1000):
        if magnitude >= limit:
            decimals -= 1
    return f"{value:,.{decimals}f}"


def clock(seconds: float | None) -> str:
    """Formats seconds as `3:12`, `1:03:12` or `2d 03:12:00`; None and values that are not a sensible time as `-:--`."""
    if seconds is None or not 0 <= seconds < LONGEST_S:
        return "-:--"
    minutes, s = divmod(round(seconds), 60)
    hours, m = divmod(minutes, 60)
    days, h = divmod(hours, 24)
    if days:
        return f"{days}d {h:02}:{m:02}:{s:02}"
    if h:
        return f"{h}:{m:02}:{s:02}"
    return f"{m}:{s:02}"


def memory(megabytes: float) -> str:
    """Formats a size in MB or GB."""
    if megabytes >= 1000:
        return f"{megabytes / 1024:.1f} GB"
    return f"{megabytes:.0f} MB"


def size(count: float) -> str:
    """Formats a number of bytes in B, kB, MB or GB."""
    if count < 1024:
        return f"{count:.0f} B"
    if count < 1024**2:
        return f"{count / 1024:.1f} kB"
    if count < 1024**3:
        return f"{count / 1024**2:.1f} MB"
    return f"{count / 1024**3:.1f} GB"


def closing(view: View, summary: dict[str, object]) -> list[str]:
    """Returns the lines that a console prints when a run ends. summary: content of summary.json, or {} for none."""
    if not summary:
        return []
    figures = {key: value for key, value in summary.items() if isinstance(value, int | float)}
    step = figures.get("step", view.step)
    wall_s = figures.get("wall_s", view.elapsed_s)
    lines = [f"{summary['status']}: {step:,} of {view.total_steps:,} steps in {clock(wall_s)}"]
    if "stop_reason" in summary:
        lines[0] += f", because {summary['stop_reason']}"
    if "steps_per_s" in figures:
        lines[0] += f" ({number(figures['steps_per_s'])} steps/s)"
    if "final_return" in figures:
        which = "final" if summary["status"] == "done" else "last"
        lines.append(f"{which} return {number(figures['final_return'])}")
    if "best_return" in figures and "best_step" in figures:
        lines.append(f"best return {number(figures['best_return'])} at step {figures['best_step']:,}")
    return [*lines, view.run]
