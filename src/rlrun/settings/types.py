"""Types of settings: numbers and the ranges that they may have."""

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

MOST_EPISODES = 1_000_000  # maximum of one evaluation


def _whole(value: object) -> Any:
    """Returns a whole float, such as 1e6, as an int. Others are unchanged: validation refuses true, "10" and 1.5."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _range(value: list[float]) -> list[float]:
    if len(value) != 2 or value[0] > value[1]:
        raise PydanticCustomError("range", "Input should be [low, high] with low at most high")
    return value


def _non_negative(value: float | list[float]) -> float | list[float]:
    numbers = value if isinstance(value, list) else [value]
    if any(number < 0 for number in numbers):
        raise PydanticCustomError("non_negative", "Input should be at least 0")
    return value


def _whole_range(value: object) -> list[int]:
    """Returns [low, high] of whole numbers from 1 on. A single number is the range that holds only this number."""
    pair = value if isinstance(value, list) else [value, value]
    bounds = [_whole(bound) for bound in pair]
    is_valid = len(bounds) == 2 and all(type(bound) is int and bound >= 1 for bound in bounds)
    if not is_valid or bounds[0] > bounds[1]:
        text = "Input should be a whole number of at least 1, or [low, high] of such numbers with low at most high"
        raise PydanticCustomError("range", text)
    return bounds


Int = Annotated[int, BeforeValidator(_whole)]
PositiveInt = Annotated[int, BeforeValidator(_whole), Field(ge=1)]
NonNegativeInt = Annotated[int, BeforeValidator(_whole), Field(ge=0)]
Size = Annotated[PositiveInt, Field(le=2**24)]  # number of rows that are in memory at the same time
Units = Annotated[PositiveInt, Field(le=2**14)]  # a count, as of the units of a layer, networks, atoms, simulations
Episodes = Annotated[NonNegativeInt, Field(le=MOST_EPISODES)]  # number of episodes of one evaluation
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
OpenFraction = Annotated[float, Field(gt=0, lt=1)]
PositiveFraction = Annotated[float, Field(gt=0, le=1)]
PerDimension = float | list[float]  # one number, or one for each dimension of the action
NonNegativePerDimension = Annotated[PerDimension, AfterValidator(_non_negative)]
Range = Annotated[list[float], AfterValidator(_range)]
IntRange = Annotated[list[int], BeforeValidator(_whole_range)]  # [low, high]; may be given as one number
