"""Axes of the searched keys: every range on its own scale, from 0 to 1."""

import math
from collections.abc import Sequence

from rlrun.dotted import show
from rlrun.report.figures import Axis, axis, short
from rlrun.report.names import shortened
from rlrun.sweep.ranges import Continuous, Listed, Log, Logit, Range

MARGIN = 0.05
MOST = 6  # labels of an axis
LONGEST = 14  # characters of a label


def scale(values: Range) -> Axis:
    """Returns the axis of a range. Its positions are those of `Range.position`."""
    shown = _ticks(values)
    labels = [label(one) for one in shown]
    return Axis(-MARGIN, 1 + MARGIN, [values.position(one) for one in shown], labels)


def label(value: object) -> str:
    """Returns a value as a short text."""
    if isinstance(value, float):
        text = f"{value:g}".replace("e-0", "e-")
        return text if len(text) < 8 else short(value)
    return shortened(show(value), LONGEST)


def _ticks(values: Range) -> Sequence[object]:
    """Returns values that get a label: round ones, or some of those that are listed."""
    if isinstance(values, Listed):
        every = math.ceil(len(values.values) / MOST)
        return values.values[::every]
    assert isinstance(values, Continuous)
    inside = [one for one in _round(values) if values.low <= one <= values.high]
    if len(inside) < 2:
        return [values.low, values.high]
    return inside[:: math.ceil(len(inside) / MOST)]


def _round(values: Continuous) -> Sequence[float]:
    """Returns round numbers, some of which may be outside of the bounds."""
    low, high = values.low, values.high
    if isinstance(values, Log):
        powers = [float(f"1e{power}") for power in range(_power(low), _power(high) + 1)]
        if sum(low <= one <= high for one in powers) >= 2:
            return powers
        return [factor * power for power in powers for factor in (1, 2, 5)]
    if isinstance(values, Logit):
        near_0 = [float(f"1e-{digits}") for digits in range(9, 0, -1)]
        near_1 = [float(f"0.{'9' * digits}") for digits in range(1, 10)]
        rounds = [*near_0, 0.5, *near_1]
        if sum(low <= one <= high for one in rounds) >= 2:
            return rounds
    return axis([low, high], margin=0).ticks


def _power(value: float) -> int:
    return math.floor(math.log10(value))
