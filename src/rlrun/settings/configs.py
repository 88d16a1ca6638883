"""Configs: classes of settings, each with a type and a range. Default values are in YAML only."""

import copy
from dataclasses import FrozenInstanceError, field, fields, is_dataclass
from functools import cache, partial
from typing import Any, ClassVar, TypeVar, dataclass_transform, get_origin, get_type_hints

import pydantic

from rlrun.dotted import show
from rlrun.errors import ConfigError, closest, did_you_mean

T = TypeVar("T")
LONGEST_VALUE = 80  # letters of a value that a message shows
SETTINGS = pydantic.ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)  # of every Config


@dataclass_transform(kw_only_default=True, frozen_default=True)
def config(cls: type[T]) -> type[T]:
    """Class decorator that makes a frozen pydantic dataclass. Unknown keys and values of a wrong type are errors.

    Parts of rlrun have their values in YAML. Parts without YAML files and parts of a user may have defaults, which may
    be lists and dicts too.
    """
    for name, value in list(vars(cls).items()):
        origin: object = get_origin(cls.__annotations__.get(name))
        is_setting = name in cls.__annotations__ and origin is not ClassVar
        if is_setting and isinstance(value, list | dict):
            setattr(cls, name, field(default_factory=partial(copy.deepcopy, value)))
    made = pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=SETTINGS)(cls)
    made.__setattr__ = refuse_assignment  # type: ignore[method-assign]  # dataclasses' own gives no advice
    return made  # type: ignore[return-value]


def refuse_assignment(self: object, name: str, value: object) -> None:
    """Raises FrozenInstanceError."""
    raise FrozenInstanceError(
        f"cfg.{name}={value}: a setting is constant in a run; declare it as Scheduled[...] in its Config and use "
        f"algo.schedule.{name}, or keep a number that changes in a buffer (self.register_buffer)"
    )


@cache
def constant(cls: type) -> type:
    """Returns a subclass of a dataclass whose fields cannot be assigned after `__init__`."""

    class Unassignable(cls):  # type: ignore[misc]
        def __init__(self, *args: object, **kwargs: object):
            self.__dict__.update(cls(*args, **kwargs).__dict__)

        __setattr__ = refuse_assignment

    Unassignable.__name__, Unassignable.__qualname__ = cls.__name__, cls.__qualname__
    return Unassignable


def parse(cls: type[T], values: dict[str, Any], path: str) -> T:
    """Builds `cls` from plain values, and its sections that have a Config of their own.

    Raises ConfigError with one line per fault, each with its dotted key.
    """
    made: type[T] = cls
    # a dataclass of a user without @config; one with slots stays as it is
    if not cls.__dataclass_params__.frozen and not hasattr(cls, "__slots__"):  # type: ignore[attr-defined]
        made = constant(cls)  # type: ignore[arg-type]
    values = dict(values)
    faults: list[str] = []
    for name, section in _sections_of(cls).items():  # type: ignore[arg-type]
        if isinstance(values.get(name), dict):
            try:
                values[name] = parse(section, values[name], f"{path}.{name}".lstrip("."))
            except ConfigError as error:
                faults += error.faults
                values[name] = object.__new__(section)  # a placeholder, so that the other settings are checked too
    try:
        built = made(**values)
    except pydantic.ValidationError as error:
        lines: dict[str, str] = {}  # a union like `int | None` gives a fault for each member; the first is enough
        for fault in error.errors():
            where = _where(path, fault["loc"], values)
            lines.setdefault(where, _explain(where, fault, cls))
        raise ConfigError(*faults, *lines.values()) from None
    if faults:
        raise ConfigError(*faults)
    return built


@cache
def _sections_of(cls: type) -> dict[str, type]:
    """Returns the fields of a Config whose type is a Config too."""
    return {name: hint for name, hint in get_type_hints(cls).items() if is_dataclass(hint) and isinstance(hint, type)}


def _where(path: str, location: tuple[int | str, ...], values: dict[str, object]) -> str:
    """Returns the dotted key of a fault, from pydantic's location.

    A location may contain labels that are not keys, such as the type in a union. They are left out.
    """
    keys = [path, *map(str, location[:1])]
    found: Any = values.get(str(location[0])) if location else None
    for part in location[1:]:
        try:
            found = found[part]
        except (TypeError, KeyError, IndexError):
            continue
        keys.append(str(part))
    # of a number with a schedule, pydantic validates `start`, but its location ends at the section
    if isinstance(found, dict) and {"name", "start"} <= {*found}:
        keys.append("start")
    return ".".join(keys).strip(".")


def _explain(where: str, fault: Any, cls: type) -> str:
    if fault["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        prefix, dot, key = where.rpartition(".")
        near = closest(key, [field.name for field in fields(cls)])
        suggestion = None
        if near is not None:
            suggestion = f"{prefix}{dot}{near}"
        return f"{where}: unknown key{did_you_mean(suggestion)}"
    if fault["type"].startswith("missing"):
        return f"{where}: missing"
    if fault["type"] == "string_type" and isinstance(fault["input"], bool | int | float):
        return f"{where}={show(fault['input'])}: must be text; put it in quotes: \"{where}='{show(fault['input'])}'\""
    said = fault["msg"].replace("Input should", "must")
    if not fault["loc"]:  # the fault of a whole section
        return f"{where}: {said}"
    value = repr(fault["input"])
    shown = value if len(value) <= LONGEST_VALUE else f"{value[: LONGEST_VALUE - 3]}..."
    return f"{where}={shown}: {said}"
