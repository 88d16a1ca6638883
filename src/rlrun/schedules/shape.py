"""Shapes of schedules: a value as a function of the environment steps, the updates or the progress of a run."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, Protocol

from pydantic_core import PydanticCustomError

from rlrun.settings import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveFraction, PositiveInt, config
from rlrun.types import Context


def linear(start: float, end: float, progress: float, fraction: float = 1.0) -> float:
    """Returns start at progress 0, end from progress = fraction on, and a linear interpolation in between."""
    done = min(1.0, progress / fraction)
    return start + (end - start) * done


def stage(at: Sequence[float], now: float) -> tuple[int, float]:
    """Returns how many of the increasing points `at` are reached, and the fraction of the way to the next one.

    The fraction is 0 before the first point and from the last one on.
    """
    reached = bisect_right(at, now)
    if not 0 < reached < len(at):
        return reached, 0.0
    begin, end = at[reached - 1], at[reached]
    return reached, (now - begin) / (end - begin)


class Shape(Protocol):
    """The settings of a schedule."""

    def value_at(self, start: float, ctx: Context) -> float:
        """Returns the value at a point of the run; start: the value at step 0."""

    def reached(self, start: float) -> list[float]:
        """Returns the values that the schedule takes or approaches; all others lie between these and the start."""


@config
class LinearSchedule:
    """Changes linearly to `end` over the first `fraction` of the run, or until the environment step `end_step`.

    Without either, it changes over the whole run.
    """

    end: float
    fraction: PositiveFraction | None = None
    end_step: PositiveInt | None = None

    def __post_init__(self) -> None:
        if self.fraction is not None and self.end_step is not None:
            raise PydanticCustomError("linear", "Input should have `fraction` or `end_step`, with null for the other")

    def value_at(self, start: float, ctx: Context) -> float:
        if self.end_step is not None:
            return linear(start, self.end, ctx.env_steps / self.end_step)
        return linear(start, self.end, ctx.progress, self.fraction or 1.0)

    def last_step(self, total: int) -> int:
        """Returns the step of a run of `total` steps at which the value is `end`."""
        if self.end_step is not None:
            return self.end_step
        return int((self.fraction or 1.0) * total)

    def reached(self, start: float) -> list[float]:
        return [self.end]


@config
class RandomStartSchedule(LinearSchedule):
    """Is 1 for the first `start_steps` environment steps, and then as `LinearSchedule`."""

    start_steps: NonNegativeInt

    def value_at(self, start: float, ctx: Context) -> float:
        if ctx.env_steps < self.start_steps:
            return 1.0
        return super().value_at(start, ctx)

    def reached(self, start: float) -> list[float]:
        return [1.0, self.end]


@config
class ExponentialSchedule:
    """Decays exponentially to `end`, with a time constant of `steps` environment steps."""

    end: float
    steps: PositiveInt

    def value_at(self, start: float, ctx: Context) -> float:
        """Returns end + (start - end) exp(-t / steps) at step t."""
        distance = (start - self.end) * math.exp(-ctx.env_steps / self.steps)
        return self.end + distance

    def reached(self, start: float) -> list[float]:
        return [self.end]


@config
class GeometricSchedule:
    """Is multiplied by `factor` every `updates` updates."""

    factor: PositiveFloat
    updates: PositiveInt = 1

    def value_at(self, start: float, ctx: Context) -> float:
        """Returns start * factor^count after `count` multiplications, infinite if it is too large for a float."""
        try:
            return float(start * self.factor ** (ctx.updates // self.updates))
        except OverflowError:
            return math.inf

    def reached(self, start: float) -> list[float]:
        """Returns the first new value. With a factor above 1, later ones are checked while the run trains."""
        return [start * self.factor]


@config
class InverseSchedule:
    """Is divided by 1 + decay * i after i updates; i starts again at 0 every `restart_every` updates, if it is set.

    "burst" starts it again with every burst of updates, which are those of one tick of the loop.
    """

    decay: NonNegativeFloat
    restart_every: PositiveInt | Literal["burst"] | None = None

    def value_at(self, start: float, ctx: Context) -> float:
        age = ctx.updates
        if self.restart_every == "burst":
            age = ctx.tick_updates
        elif self.restart_every is not None:
            age %= self.restart_every
        return start / (1 + self.decay * age)

    def reached(self, start: float) -> list[float]:
        return [0.0]


@config
class PiecewiseSchedule:
    """Has the value values[i] in the ticks that begin at the environment step at[i] or later, and the start before."""

    values: list[float]
    at: list[NonNegativeInt]
    linear: bool = False  # interpolate between the values

    def __post_init__(self) -> None:
        is_increasing = all(one < other for one, other in pairwise(self.at))
        if len(self.at) != len(self.values) or not is_increasing:
            raise PydanticCustomError("piecewise", "Input should have increasing steps `at`, one for each value")

    def value_at(self, start: float, ctx: Context) -> float:
        reached, share = stage(self.at, ctx.env_steps)
        if self.linear and share:
            return linear(self.values[reached - 1], self.values[reached], share)
        return [start, *self.values][reached]

    def reached(self, start: float) -> list[float]:
        return self.values


SHAPES: dict[str, type[Shape]] = {
    "linear": LinearSchedule,
    "random_start": RandomStartSchedule,
    "exponential": ExponentialSchedule,
    "geometric": GeometricSchedule,
    "inverse": InverseSchedule,
    "piecewise": PiecewiseSchedule,
}
