"""The values that a sweep may try for one config key.

A range maps numbers of the unit interval to values, so that every search works on points of the unit cube. Numbers are
rounded to `DIGITS` significant digits. They are then short in the command of a run, and `value(position(x))` is exactly
x, although `warp` and `unwarp` are not exact.
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rlrun import dotted
from rlrun.config.sources import NUMBER
from rlrun.config.stored import parse_yaml
from rlrun.errors import ConfigError, nearest
from rlrun.formats.numbers import HUGE, is_number

DIGITS = 6
MOST_DEEP = 20  # levels of lists and dicts in a value
LARGEST = 2**53  # largest size of a whole number, and most values of `int`: a float in [0, 1) can choose no more


class Range(ABC):
    """The values of one key. Each kind has a `name`, under which it is typed: `log(1e-5,1e-2)`."""

    name: ClassVar[str]

    @property
    def text(self) -> str:
        """The range as it is typed."""
        return f"{self.name}({','.join(map(dotted.show, self.arguments))})"

    @property
    @abstractmethod
    def arguments(self) -> list[object]:
        """The values between the brackets."""

    @abstractmethod
    def value(self, u: float) -> Any:
        """Returns the value at u in [0, 1). If u is uniform, listed values are equally likely, and other values are
        uniform on the scale of their kind."""

    @abstractmethod
    def holds(self, value: object) -> bool:
        """Returns whether a value is in this range. The value may be of any type."""

    @abstractmethod
    def position(self, value: object) -> float:
        """Returns the middle of the numbers u for which `value(u)` is this value."""

    @abstractmethod
    def multiplied(self, value: object, factor: float) -> object:
        """Returns a larger value for a factor above 1 and a smaller one for a factor below 1, within the range.

        Numbers are multiplied by the factor; `logit` multiplies the odds. Kinds that list their values return the next
        value or the previous one.
        """

    @abstractmethod
    def ends(self) -> list[object]:
        """Returns the values that are checked before a sweep starts: both ends, or every choice."""

    @abstractmethod
    def grid(self, points: int) -> list[object]:
        """Returns at most `points` values in order, evenly spaced over the range. A `choice` returns all options."""


@dataclass(frozen=True)
class Bounded(Range):
    """Numbers between two bounds."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ConfigError(f"{self.text}: the first bound must be below the second")

    @property
    def arguments(self) -> list[object]:
        return [self.low, self.high]

    def ends(self) -> list[object]:
        return self.arguments


class Continuous(Bounded):
    """Numbers between two bounds, uniform on the scale that `warp` maps them to, such as that of logarithms."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if f"{self.low:.{DIGITS}g}" == f"{self.high:.{DIGITS}g}":
            raise ConfigError(f"{self.text}: the bounds are equal to {DIGITS} digits")

    def warp(self, value: float) -> float:
        """Returns the value on the scale on which the range is uniform."""
        return value

    def unwarp(self, warped: float) -> float:
        """The inverse of `warp`."""
        return warped

    def value(self, u: float) -> float:
        low, high = self.warp(self.low), self.warp(self.high)
        return self.rounded(self.unwarp(low + u * (high - low)))

    def holds(self, value: object) -> bool:
        return is_number(value, self.low, self.high)

    def position(self, value: Any) -> float:
        low, high = self.warp(self.low), self.warp(self.high)
        return (self.warp(value) - low) / (high - low)

    def multiplied(self, value: Any, factor: float) -> object:
        return self.rounded(value * factor)

    def rounded(self, value: float) -> float:
        """Returns a number rounded to `DIGITS` digits, within the bounds."""
        return min(max(float(f"{value:.{DIGITS}g}"), self.low), self.high)

    def grid(self, points: int) -> list[object]:
        if points == 1:
            return [self.value(0.5)]
        return [self.value(i / (points - 1)) for i in range(points)]


@dataclass(frozen=True)
class Uniform(Continuous):
    """Numbers between two bounds, all equally likely."""

    name: ClassVar[str] = "uniform"


@dataclass(frozen=True)
class Log(Continuous):
    """Positive numbers whose logarithm is uniform, such as learning rates."""

    name: ClassVar[str] = "log"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low <= 0:
            raise ConfigError(f"{self.text}: bounds must be above 0")

    def warp(self, value: float) -> float:
        return math.log(value)

    def unwarp(self, warped: float) -> float:
        return math.exp(warped)


@dataclass(frozen=True)
class Logit(Continuous):
    """Numbers between 0 and 1 whose log-odds are uniform, such as discounts: 0.9, 0.99 and 0.999 are evenly spaced."""

    name: ClassVar[str] = "logit"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low <= 0 or self.high >= 1:
            raise ConfigError(f"{self.text}: bounds must be above 0 and below 1")

    def warp(self, value: float) -> float:
        return math.log(value / (1 - value))

    def unwarp(self, warped: float) -> float:
        return 1 / (1 + math.exp(-warped))

    def multiplied(self, value: Any, factor: float) -> object:
        """Returns the value whose odds are `factor` times as high, so that 0.99 may become 0.992, but never 1."""
        odds = factor * value / (1 - value)
        return self.rounded(odds / (1 + odds))


class Listed(Range):
    """Values that are listed one by one, all equally likely."""

    @property
    @abstractmethod
    def values(self) -> Sequence[object]:
        """All values, in order."""

    def value(self, u: float) -> Any:
        return self.values[int(u * len(self.values))]

    def holds(self, value: object) -> bool:
        return value in self.values

    def position(self, value: object) -> float:
        return (self.values.index(value) + 0.5) / len(self.values)

    def multiplied(self, value: object, factor: float) -> object:
        place = self.values.index(value)
        if factor > 1:
            place += 1
        elif factor < 1:
            place -= 1
        return self.values[min(max(place, 0), len(self.values) - 1)]

    def grid(self, points: int) -> list[object]:
        count = min(points, len(self.values))
        return [self.value((i + 0.5) / count) for i in range(count)]


@dataclass(frozen=True)
class Int(Bounded, Listed):
    """Whole numbers from `low` to `high`, both included."""

    low: int
    high: int
    name: ClassVar[str] = "int"

    def __post_init__(self) -> None:
        if type(self.low) is not int or type(self.high) is not int:
            raise ConfigError(f"{self.text}: bounds must be whole numbers")
        if max(abs(self.low), abs(self.high)) > LARGEST:
            raise ConfigError(f"{self.text}: bounds must be at most 2^53 in size")
        if self.high - self.low >= LARGEST:
            raise ConfigError(f"{self.text}: must have at most 2^53 values")
        super().__post_init__()

    @property
    def values(self) -> Sequence[int]:
        return range(self.low, self.high + 1)

    def holds(self, value: object) -> bool:
        return type(value) is int and super().holds(value)  # `in` of a Python range is slow for other types


@dataclass(frozen=True)
class PowerOfTwo(Int):
    """Powers of two from `low` to `high`, both included, such as batch sizes."""

    name: ClassVar[str] = "pow2"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low < 1 or self.low & (self.low - 1) or self.high & (self.high - 1):
            raise ConfigError(f"{self.text}: bounds must be powers of two")

    @property
    def values(self) -> Sequence[int]:
        return [2**power for power in range(self.low.bit_length() - 1, self.high.bit_length())]


@dataclass(frozen=True)
class Choice(Listed):
    """One of several values of any type."""

    options: tuple[object, ...]
    name: ClassVar[str] = "choice"

    def __post_init__(self) -> None:
        if len(self.options) < 2:
            raise ConfigError(f"{self.text}: needs at least two values")
        for index, option in enumerate(self.options):
            if option in self.options[:index]:
                raise ConfigError(f"{self.text}: has the value {dotted.show(option)} twice")

    @property
    def arguments(self) -> list[object]:
        return list(self.options)

    @property
    def values(self) -> Sequence[object]:
        return self.options

    def ends(self) -> list[object]:
        return self.arguments

    def grid(self, points: int) -> list[object]:
        return self.arguments


KINDS: dict[str, type[Range]] = {kind.name: kind for kind in (Uniform, Log, Logit, Int, PowerOfTwo, Choice)}


def built(kind: str, arguments: Sequence[object]) -> Range:
    """Returns the range of this kind. Raises ConfigError if the kind is unknown or the arguments do not fit it."""
    numbers = [plain(argument) for argument in arguments]
    if kind not in KINDS:
        raise ConfigError(
            f"{kind}({','.join(map(dotted.show, numbers))}): unknown range{nearest(kind, KINDS)} "
            f"(there are: {', '.join(KINDS)})"
        )
    if kind == Choice.name:
        return Choice(tuple(numbers))
    if len(numbers) != 2 or not all(map(is_number, numbers)):
        raise ConfigError(f"{kind}({','.join(map(dotted.show, numbers))}): needs two numbers of at most {HUGE:g}")
    found: Range = KINDS[kind](*numbers)
    return found


def typed(text: str) -> Range | None:
    """Returns the range of a text such as `log(1e-5,1e-2)`, or None for a plain value. Raises ConfigError."""
    match = re.fullmatch(r"\s*([A-Za-z_]\w*)\((.*)\)\s*", text, re.DOTALL)
    if match is None:
        kind, bracket, _ = text.strip().partition("(")
        if bracket and kind in KINDS:
            raise ConfigError(f"{text}: the closing bracket is missing")
        return None
    try:
        arguments = parse_yaml(f"[{match[2]}]", Path(match[1]))  # the path only names the text in messages
    except ConfigError:
        raise ConfigError(f"{text}: cannot be read") from None
    return built(match[1], arguments)


def plain(value: object, depth: int = 0) -> Any:
    """Returns a value from YAML in which texts such as `1e-5`, which YAML does not read as numbers, are numbers.

    Raises ConfigError if the value has more than MOST_DEEP levels.
    """
    if depth > MOST_DEEP:
        raise ConfigError(f"a value has more than {MOST_DEEP} levels")
    if isinstance(value, list):
        return [plain(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {key: plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, str) and NUMBER.match(value):
        return float(value)
    return value
