"""Marks of settings: those that name a part, and numbers that may change during a run."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import pydantic
from pydantic_core import PydanticCustomError, core_schema

from rlrun.settings.configs import SETTINGS

T = TypeVar("T")


@dataclass(frozen=True)
class Part:
    """Marks a field of a Config as a registered part: `critic: Annotated[dict[str, Any], Part("critic")]`.

    The value of the field is the name of a part, or a section with `name` and the part's settings.
    """

    group: str  # group in the registry

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> object:
        return core_schema.no_info_before_validator_function(_part, handler(source))


def _part(value: object) -> object:
    part = {"name": value} if isinstance(value, str) else value
    if not isinstance(part, dict) or not isinstance(part.get("name"), str):
        raise PydanticCustomError("part", "Input should be the name of a part, or a section with its name")
    return part


@dataclass(frozen=True)
class ScheduledValue:
    """A number with a schedule: `start` is validated as the number, and a part of the agent gets `value`.

    value: a 0-d tensor, which changes during the run.
    """

    start: float
    value: Any


@dataclass(frozen=True)
class MayChange:
    """Marks a field of a Config as a number that may change during a run.

    Its value is a number, which `algo.schedule` may change, or a section: the name of a shape of schedules/shape.py,
    `start` and the settings of the shape.
    """

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> object:
        return core_schema.no_info_wrap_validator_function(_scheduled, handler(source))


def _scheduled(value: Any, validate: Any) -> object:
    if isinstance(value, ScheduledValue):
        validate(value.start)
        return value.value
    if is_schedule(value):  # nothing changes the number, as in an evaluation
        return validate(value.get("start"))
    return validate(value)


def is_schedule(value: object) -> bool:
    """Returns whether the value of a number's setting is a schedule: a section with `name`."""
    return isinstance(value, dict) and isinstance(value.get("name"), str)


N = TypeVar("N")
Scheduled = Annotated[N, MayChange()]  # `gae_lambda: Scheduled[Fraction]`


@cache
def scheduled_of(cls: type) -> list[str]:
    """Returns the fields of a Config that may be scheduled."""
    hints = get_type_hints(cls, include_extras=True)
    return [name for name, hint in hints.items() if any(_marks(hint, MayChange))]


@cache
def _type_of(cls: type, field: str) -> pydantic.TypeAdapter[object]:
    hint = get_type_hints(cls, include_extras=True)[field]
    return pydantic.TypeAdapter(hint, config=SETTINGS)


def number_fault(cls: type, field: str, number: float) -> str | None:
    """Returns why a field of a Config cannot have this number, such as "must be greater than 0", or None."""
    try:
        _type_of(cls, field).validate_python(number)
    except pydantic.ValidationError as error:
        return error.errors()[0]["msg"].replace("Input should", "must")
    return None


@cache
def parts_of(cls: type) -> dict[str, str]:
    """Returns the fields of a Config that are parts, each with its group in the registry."""
    hints = get_type_hints(cls, include_extras=True)
    return {name: mark.group for name, hint in hints.items() for mark in _marks(hint, Part)}


def _marks(hint: object, kind: type[T]) -> Iterator[T]:
    """Yields the marks of one kind in an annotation, at any depth, as in `Annotated[...] | None`."""
    yield from (mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, kind))
    for inner in get_args(hint):
        yield from _marks(inner, kind)
