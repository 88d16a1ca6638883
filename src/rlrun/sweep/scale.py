"""Axes of the searched keys: every range on its own scale, from 0 to 1."""

import math
from collections.abc import Sequence

from rlrun.dotted import show
from rlrun.report.figures import Axis, axis, short
from rlrun.report.names import shortened
from rlrun.sweep.ranges import Continuous, Listed, Log, Logit, Range

MARGIN = 0.05
MOST = 6  # number of labels of an axis
LONGEST = 14  # number of characters of a label


def scale(searched: Range) -> Axis:
    """Returns the axis of a range. Its positions are those of `Range.position`."""
    shown = _ticks(searched)
    labels = [label(one) for one in shown]
    return Axis(-MARGIN, 1 + MARGIN, [searched.position(one) for one in shown], labels)


def label(value: object) -> str:
    """Returns a value as a short text."""
    if isinstance(value, float):
        text = f"{value:g}".replace("e-0", "e-")
        return text if len(text) < 8 else short(value)
    return shortened(show(value), LONGEST)


def _ticks(searched: Range) -> Sequence[object]:
    """Returns the values that get a label: round numbers, or some of the listed values."""
    if isinstance(searched, Listed):
        every = math.ceil(len(searched.values) / MOST)
        return searched.values[::every]
    assert isinstance(searched, Continuous)
    inside = [one for one in _round(searched) if searched.low <= one <= searched.high]
    if len(inside) < 2:
        return [searched.low, searched.high]
    return inside[:: math.ceil(len(inside) / MOST)]


def _round(searched: Continuous) -> Sequence[float]:
    """Returns round numbers; some may be outside of the bounds."""
    low, high = searched.low, searched.high
    if isinstance(searched, Log):
        powers = [float(f"1e{power}") for power in range(_power(low), _power(high) + 1)]
        if sum(low <= one <= high for one in powers) >= 2:
            return powers
        return [factor * power for power in powers for factor in (1, 2, 5)]
    if isinstance(searched, Logit):
        near_0 = [float(f"1e-{digits}") for digits in range(9, 0, -1)]
        near_1 = [float(f"0.{'9' * digits}") for digits in range(1, 10)]
        rounds = [*near_0, 0.5, *near_1]
        if sum(low <= one <= high for one in rounds) >= 2:
            return rounds
    return axis([low, high], margin=0).ticks


def _power(value: float) -> int:
    return math.floor(math.log10(value))
