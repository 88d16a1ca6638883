"""The state of a run that a console shows, and the lines that it prints at the end. Independent of any terminal."""

import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from rlrun import dotted
from rlrun.errors import printable
from rlrun.telemetry.formatting import clock, number
from rlrun.telemetry.metrics import Row, last_step

HISTORY = 40  # number of values kept for a sparkline
WINDOW_S = 60.0  # seconds over which the current speed is measured


class View:
    """The latest value of every key, short histories of returns, the best evaluation, and the current speed."""

    def __init__(
        self,
        title: str,
        run: Path,
        total_steps: int,
        past: list[Row],
        warmup_steps: int = 0,
        total_updates: int | None = None,
    ):
        """past: the log rows from before a resume. warmup_steps: steps before the first update.

        total_updates: updates after which the run ends, if that is before `total_steps`.
        """
        self.title = printable(title)
        self.run = printable(run)
        self._totals = total_steps, total_updates
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
        self._warm_from = warmup_steps  # the first step of which the speed is not that of the warm-up

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
        if self.step < self._warm_from <= step:
            self._marks.clear()
            self._marks.append((now, step))
            self._warm_from = step
        self.step = step
        if now <= self._marks[-1][0]:  # no time has passed, so there is no speed
            return
        self._marks.append((now, step))
        while len(self._marks) > 2 and self._marks[0][0] < now - WINDOW_S:
            self._marks.popleft()
        start, start_step = self._marks[0]
        self.speed = (step - start_step) / (now - start)

    @property
    def total_steps(self) -> int:
        """The step at which the run ends, estimated if it ends after a number of updates."""
        return last_step(*self._totals, self.latest)

    @property
    def elapsed_s(self) -> float:
        """Seconds of training so far, including those before a resume."""
        return self._earlier_s + self.now() - self._started

    def left_s(self, speed: float) -> float | None:
        """Returns the remaining seconds at this speed (steps per second), or None if the speed is 0 (unknown).

        None too in the warm-up and at its end, because steps without updates take less time.
        """
        is_warm = self._warm_from == 0 or self.step > self._warm_from
        if speed <= 0 or not is_warm:
            return None
        return max(0, self.total_steps - self.step) / speed

    @property
    def done(self) -> float:
        """The fraction of steps done, 0 to 1."""
        return min(1.0, self.step / max(1, self.total_steps))


def goals(row: Mapping[str, float]) -> list[tuple[str, float]]:
    """Returns the metrics of a row by which sparse tasks are judged: the success rate (that of an evaluation if there
    is one) and custom/*, without their prefix."""
    found = []
    success = row.get("eval/success_rate", row.get("train/success_rate"))
    if success is not None:
        found.append(("success", success))
    custom = "custom/"
    return found + [(key.removeprefix(custom), row[key]) for key in row if key.startswith(custom)]


def warmup_steps(config: Mapping[str, object]) -> int:
    """Returns the steps of a run before its first update, in which the time left is unknown. config: of the run."""
    values = dict(config)
    steps: list[object] = [dotted.lookup(f"algo.loop.{key}", values) for key in ("warmup_steps", "start_update")]
    if steps[0] is None:
        steps.append(dotted.lookup("algo.buffer.capacity", values))
    return max([0, *(step for step in steps if isinstance(step, int))])


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
