"""Hyperparameters on a schedule: `algo.schedule.<key>`, for every number that its Config declares as `Scheduled`."""

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rlrun.errors import ConfigError, RunError
from rlrun.schedules.learning_rate import LARGEST
from rlrun.schedules.shape import SHAPES, Geometric, Piecewise
from rlrun.settings import ScheduledValue, number_fault, parse, parts_of, registry, scheduled_of
from rlrun.types import Context, Metrics

Point = tuple[int, float]  # step and value


class ScheduledNumber(nn.Module):
    """One hyperparameter. The parts of the agent hold the tensor `value`, which `update` changes in place.

    key: its dotted key below `algo`. cls: the Config that declares it. Raises ConfigError if the schedule leaves the
    range of the number.
    """

    value: Tensor

    def __init__(self, start: float, shape: Any, key: str, cls: type):
        super().__init__()
        self.start, self.shape, self.key, self.cls = start, shape, key, cls
        self.grows = isinstance(shape, Geometric) and shape.factor > 1  # has no end that could be checked here
        for value in shape.reached(start):
            if fault := self.fault(value):
                raise ConfigError(fault)
        self.register_buffer("value", torch.tensor(float(start)), persistent=False)  # it follows from the step

    def update(self, ctx: Context) -> None:
        """Sets the value for a point of the run. Raises RunError if it has grown out of its range."""
        value = self.shape.value_at(self.start, ctx)
        if self.grows and (fault := self.fault(value)):
            raise RunError(fault)
        self.value.fill_(value)

    def ends_at_zero(self, ctx: Context) -> bool:
        """Returns whether it is 0 at a point of the run although its type excludes 0, as that of a clip range does."""
        value = self.shape.value_at(self.start, ctx)
        return value == 0 and number_fault(self.cls, self.key.rpartition(".")[2], value) is not None

    def fault(self, value: float) -> str | None:
        """Returns why the number cannot have a value, or None. The end of an open range is allowed, because a schedule
        approaches it: a learning rate may fall to 0."""
        fault = number_fault(self.cls, self.key.rpartition(".")[2], math.nextafter(value, self.start))
        if fault is None and abs(value) > LARGEST:
            fault = f"must be at most {LARGEST:.2g} in size"
        if fault is None:
            return None
        return f"algo.schedule.{self.key}: reaches {value:g}, but algo.{self.key} {fault}"


class Schedules(nn.Module):
    """All scheduled hyperparameters of an agent, by dotted key below `algo`. Without any, it does nothing."""

    def __init__(self, algo: Mapping[str, Any]):
        """algo: the section `algo` of a config. Raises ConfigError for keys that cannot change during a run."""
        super().__init__()
        self.numbers: dict[str, ScheduledNumber] = {}
        faults: list[str] = []
        for key, values in by_key(algo.get("schedule") or {}):
            try:
                self.numbers[key] = scheduled(key, values, algo)
            except ConfigError as error:
                faults += error.faults
        if faults:
            raise ConfigError(*faults)

    def applied(self, algo: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a copy of the section `algo` in which the numbers are scheduled."""
        values = copy.deepcopy(dict(algo))
        for key, number in self.numbers.items():
            *sections, name = key.split(".")
            home = values
            for section in sections:
                home = home[section]
            home[name] = ScheduledValue(number.start, number.value)
        return values

    def update(self, ctx: Context) -> None:
        """Sets all values for a point of the run."""
        for number in self.numbers.values():
            number.update(ctx)

    def last_points(self) -> Iterator[tuple[str, int]]:
        """Yields the setting of each piecewise schedule with the step of its last value."""
        for key, number in self.numbers.items():
            if isinstance(number.shape, Piecewise) and number.shape.at:
                yield f"algo.schedule.{key}", number.shape.at[-1]

    def report(self) -> Metrics:
        """Returns the present values by key."""
        return {key: number.value for key, number in self.numbers.items()}


def scheduled(key: str, values: Any, algo: Mapping[str, Any]) -> ScheduledNumber:
    """Returns the number with its schedule. Raises ConfigError if it cannot be scheduled."""
    path = f"algo.schedule.{key}"
    known = schedulable(algo)
    if key not in known:
        raise ConfigError(f"{path}: cannot change during a run (these can: {', '.join(sorted(known))})")
    if key.rpartition(".")[2].endswith("learning_rate"):
        rate_key, rate_schedule = schedule_of_rate(key, algo)
        if rate_schedule:
            raise ConfigError(f"{path}: {rate_key}={rate_schedule} schedules it too; remove one of them")
    ((name, settings),) = values.items()
    home: Any = algo
    for part in key.split("."):
        home = home[part]
    if not isinstance(home, int | float):
        shown = "null" if home is None else home
        raise ConfigError(f"{path}: algo.{key} is {shown}; give it a number to start from")
    return ScheduledNumber(home, parse(SHAPES[name], settings, f"{path}.{name}"), key, known[key])


def changed_at(algo: Mapping[str, Any], changes: Mapping[str, Sequence[Point]]) -> dict[str, Any]:
    """Returns the section `algo.schedule` after numbers were changed in the middle of a run, as when it is resumed.

    changes: by dotted key below `algo`, the value from a step on; or two such points, between which it is linear.
    Earlier points of a piecewise schedule stay. A schedule of another shape is replaced.
    """
    schedule: dict[str, Any] = copy.deepcopy(dict(by_key(algo.get("schedule") or {})))
    for key, new in changes.items():
        shape = schedule.get(key, {}).get("piecewise", {"values": [], "at": []})
        old = [*zip(shape["at"], shape["values"], strict=True)]
        points = [*(point for point in old if point[0] < new[0][0]), *new]
        at, values = zip(*points, strict=True)
        schedule[key] = {"piecewise": {"values": [*values], "at": [*at]}}
        if len(new) > 1 or shape.get("linear"):
            schedule[key]["piecewise"]["linear"] = True
    return schedule


def schedule_of_rate(key: str, algo: Mapping[str, Any]) -> tuple[str, Any]:
    """Returns key and value of the `lr_schedule` of a learning rate: that of the innermost section that has one."""
    found: tuple[str, Any] = ("algo.lr_schedule", None)
    home: Any = algo
    path = "algo"
    for part in key.split("."):
        if home.get("lr_schedule") is not None:
            found = (f"{path}.lr_schedule", home["lr_schedule"])
        home = home[part]
        path = f"{path}.{part}"
    return found


def by_key(schedules: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields the dotted key of each hyperparameter with its schedule, such as ("advantage.gae_lambda", {"linear":
    {"end": 1.0}})."""
    for name, values in schedules.items():
        key = f"{prefix}{name}"
        if isinstance(values, Mapping) and len(values) == 1 and {*values} <= {*SHAPES}:
            yield key, values
        elif isinstance(values, Mapping) and values and not {*values} & {*SHAPES}:
            yield from by_key(values, f"{key}.")
        else:
            shapes = ", ".join(SHAPES)
            raise ConfigError(f"algo.schedule.{key}={values}: must be one of {shapes}, such as {{linear: {{end: 0}}}}")


def schedulable(values: Mapping[str, Any], group: str = "algo", prefix: str = "") -> dict[str, type]:
    """Returns the dotted keys of an algorithm and its parts that may be scheduled, each with the Config that declares
    it."""
    cls = registry.lookup(group, values["name"]).Config
    found = {f"{prefix}{key}": cls for key in scheduled_of(cls)}
    for key, part_group in parts_of(cls).items():
        section = values.get(key)
        if isinstance(section, Mapping) and "name" in section:
            found |= schedulable(section, part_group, f"{prefix}{key}.")
    return found
