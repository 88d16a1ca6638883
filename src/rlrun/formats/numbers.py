"""Numbers of stored files, which may be of any type and size."""

from typing import Any

LAST_STEP = 2**62  # rows and snapshots with later steps are damaged
HUGE = 1e100  # larger numbers of an untrusted file are refused, because sums with them would be meaningless


def is_number(value: Any, low: float = -HUGE, high: float = HUGE) -> bool:
    """Returns whether a value of JSON or YAML is a number within bounds. NaN is not, and neither is a bool.

    Integers of any size are compared exactly, so that none overflows.
    """
    return type(value) in (int, float) and low <= value <= high


def is_whole(value: object, low: int, high: int) -> bool:
    """Returns whether a value of JSON or YAML is an int within bounds."""
    return type(value) is int and low <= value <= high
