"""Hyperparameters that change during a run: every number that its Config declares as `Scheduled` may have a schedule.

There are two ways to write one. `algo.schedule` schedules numbers of the config, from their values there:
    algo.clip_range=0.2 algo.schedule={clip_range: {linear: {end: 0}}}
Learning rates may also follow a scheduler of torch.optim.lr_scheduler.
A number that always has a schedule, such as epsilon of DQN, is a section itself; such a schedule is called inline here:
    algo.epsilon={name: linear, start: 1.0, end: 0.1}
"""

import copy
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from rlrun import dotted
from rlrun.errors import ConfigError, RunError
from rlrun.schedules.learning_rate import TorchSchedule
from rlrun.schedules.shape import SHAPES, GeometricSchedule, PiecewiseSchedule, Shape
from rlrun.settings import ScheduledValue, is_schedule, number_fault, parse, parts_of, registry, scheduled_of
from rlrun.types import Context, Metrics

Point = tuple[int, float]  # step and value
# sections of `algo` that configure parts beside the agent
OTHER_PARTS = ("loop", "buffer", "reward_weights", "representation", "goals", "intrinsic")
# sections whose numbers Python code reads: they are on the CPU in double precision, on whatever device the agent is
READ_BY_PYTHON = ("loop.", "buffer.")
LEARNING_RATE = "learning_rate"  # end of the keys that may follow a scheduler of torch
LARGEST = torch.finfo(torch.float32).max
EXAMPLE = "{linear: {end: 0}}"


class ScheduledNumber:
    """One hyperparameter. The parts of the run hold the tensor `value`, which `update` changes in place.

    key: its dotted key below `algo`. cls: the Config that declares it. setting: the key that holds the schedule, of
    the whole config. Raises ConfigError if the schedule leaves the range of the number.
    """

    def __init__(self, start: float, shape: Shape, key: str, cls: type, setting: str):
        self.start, self.shape, self.key, self.cls, self.setting = start, shape, key, cls, setting
        self.is_inline = setting == f"algo.{key}"
        # only the type of a whole number refuses both neighbours of the start
        self.is_whole = all(self.type_fault(math.nextafter(start, bound)) for bound in (-math.inf, math.inf))
        # some shapes have no last value that could be checked here, so `update` checks every value
        grows = isinstance(shape, GeometricSchedule) and shape.factor > 1
        self.is_checked = grows or isinstance(shape, TorchSchedule)
        for value in shape.reached(start):
            if fault := self.fault(value):
                raise ConfigError(fault)
        first = float(shape.value_at(start, Context(updates=0, env_steps=0, progress=0.0)))
        if key.startswith(READ_BY_PYTHON):
            self.value = torch.tensor(first, dtype=torch.float64, device="cpu")
        else:
            self.value = torch.tensor(first)

    def update(self, ctx: Context) -> None:
        """Sets the value for a point of the run. Raises RunError if it has left its range."""
        value = self.shape.value_at(self.start, ctx)
        if self.is_checked:
            fault = self.fault(value)
            if fault is not None:
                raise RunError(fault)
        self.value.fill_(value)

    def is_excluded_zero(self, ctx: Context) -> bool:
        """Returns whether it is 0 at a point of the run although its type excludes 0, as that of a clip range does."""
        value = self.shape.value_at(self.start, ctx)
        return value == 0 and self.type_fault(value) is not None

    def type_fault(self, value: float) -> str | None:
        """Returns why the type of the number does not allow a value, or None."""
        return number_fault(self.cls, field_of(self.key), value)

    def fault(self, value: float) -> str | None:
        """Returns why the number cannot have a value, or None.

        The bound of an open range is allowed, because a schedule approaches it: a learning rate may fall to 0. The
        value of a whole number may have a fraction, because all of them are minimums, such as `min_steps`: 2.5 means 3.
        """
        checked = math.nextafter(value, self.start)
        if self.is_whole and math.isfinite(value):
            checked = math.ceil(value)
        fault = self.type_fault(checked)
        if fault is None and abs(value) > LARGEST:
            fault = f"must be from {-LARGEST:.2g} to {LARGEST:.2g}"
        if fault is None:
            return None
        if self.is_inline:
            return f"{self.setting}: reaches {value:g}, but {fault}"
        return f"{self.setting}: reaches {value:g}, but algo.{self.key} {fault}"


class Schedules(nn.Module):
    """All scheduled hyperparameters of a run, by dotted key below `algo`. There may be none.

    Its state is their present values, because agents act with them, and loops count with them, until the next update,
    and that of torch's schedulers.
    """

    def __init__(self, algo: Mapping[str, Any]):
        """algo: the section `algo` of a config. Raises ConfigError for keys that cannot change during a run."""
        super().__init__()
        self.numbers: dict[str, ScheduledNumber] = {}
        if not algo:
            return
        known = schedulable(algo)
        builds: list[tuple[str, Callable[[], ScheduledNumber]]] = []
        for key, values in by_key(algo.get("schedule") or {}, known):
            if values != {} or key not in known:
                builds.append((key, partial(scheduled_number, key, values, algo, known)))
        for key, cls in known.items():
            section = dotted.lookup(key, algo)
            if is_schedule(section) and number_fault(cls, field_of(key), section.get("start")) is None:
                builds.append((key, partial(inline_number, key, section, cls)))
        faults: list[str] = []
        for key, build in builds:
            try:
                self.numbers[key] = build()
            except ConfigError as error:
                faults += error.faults
        if faults:
            raise ConfigError(*faults)
        for key, number in self.numbers.items():
            read_between_updates = not key.startswith("buffer.")
            self.register_buffer(key.replace(".", "/"), number.value, persistent=read_between_updates)
            if isinstance(number.shape, TorchSchedule):
                self.add_module(f"{key.replace('.', '/')}_scheduler", number.shape)

    def applied(self, algo: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a copy of the section `algo` in which the numbers are scheduled."""
        values = {key: ScheduledValue(number.start, number.value) for key, number in self.numbers.items()}
        return dotted.replaced(algo, values)

    def update(self, ctx: Context, tick_start: int) -> None:
        """Sets all values for an update.

        tick_start: number of environment steps when its tick began. Piecewise schedules see this number, so that a run
        that is resumed with a new value trains like one whose schedule has this value from the step of the resume on.
        """
        began = Context(ctx.updates, tick_start, ctx.progress)
        for number in self.numbers.values():
            if isinstance(number.shape, PiecewiseSchedule):
                number.update(began)
            else:
                number.update(ctx)

    def last_points(self) -> Iterator[tuple[str, int]]:
        """Yields (setting, step of the last value) of each piecewise schedule."""
        for number in self.numbers.values():
            if isinstance(number.shape, PiecewiseSchedule) and number.shape.at:
                yield number.setting, number.shape.at[-1]

    def report(self) -> Metrics:
        """Returns the present values of the numbers in `algo.schedule`, by key. Agents report inline ones."""
        return {key: number.value for key, number in self.numbers.items() if not number.is_inline}


def field_of(key: str) -> str:
    """Returns the field of a Config that a dotted key leads to."""
    return key.rpartition(".")[2]


def inline_number(key: str, section: Mapping[str, Any], cls: type) -> ScheduledNumber:
    """Returns a number with an inline schedule. Raises ConfigError."""
    setting, name = f"algo.{key}", section["name"]
    if name not in SHAPES:
        raise ConfigError(f"{setting}.name={name}: must be one of {', '.join(SHAPES)}")
    settings = {field: value for field, value in section.items() if field not in ("name", "start")}
    return ScheduledNumber(section["start"], parse(SHAPES[name], settings, setting), key, cls, setting)


def scheduled_number(key: str, values: Any, algo: Mapping[str, Any], known: Mapping[str, type]) -> ScheduledNumber:
    """Returns a number with its schedule in `algo.schedule`. Raises ConfigError if it cannot be scheduled."""
    path = f"algo.schedule.{key}"
    if key not in known:
        numbers = sorted(other for other in known if not is_schedule(dotted.lookup(other, algo)))
        raise ConfigError(f"{path}: cannot change during a run (these can: {', '.join(numbers)})")
    start = dotted.lookup(key, algo)
    if not isinstance(start, int | float):
        raise ConfigError(f"{path}: algo.{key} is {dotted.show(start)}; give it a number to start from")
    fault = number_fault(known[key], field_of(key), start)
    if fault is not None:
        raise ConfigError(f"algo.{key}={dotted.show(start)}: {fault}")
    return ScheduledNumber(start, shape_of(values, start, path), key, known[key], path)


def shape_of(values: Any, start: float, path: str) -> Shape:
    """Returns the shape of a schedule such as {"linear": {"end": 1.0}}. Raises ConfigError. path: of the schedule."""
    if not isinstance(values, Mapping) or not values:
        raise ConfigError(f"{path}={dotted.show(values)}: must be one of {', '.join(SHAPES)}, such as {EXAMPLE}")
    if len(values) > 1:
        names = ", ".join(values)
        raise ConfigError(f"{path}: one schedule at a time, not {names}; {path}={{}} removes that of the preset")
    ((name, settings),) = values.items()
    if name in SHAPES:
        return parse(SHAPES[name], settings, f"{path}.{name}")
    if path.endswith(LEARNING_RATE):
        return TorchSchedule(start, name, settings, path)
    raise ConfigError(f"{path}.{name}={dotted.show(settings)}: must be one of {', '.join(SHAPES)}, such as {EXAMPLE}")


def changed_at(algo: Mapping[str, Any], changes: Mapping[str, Sequence[Point]]) -> dict[str, Any]:
    """Returns the section `algo.schedule` after numbers were changed in the middle of a run.

    changes: by dotted key below `algo`, either one point, from which on the number has the new value, or two points,
    between which it changes linearly. A piecewise schedule keeps its earlier points. A schedule of another shape is
    replaced.
    """
    schedule: dict[str, Any] = copy.deepcopy(dict(by_key(algo.get("schedule") or {}, schedulable(algo))))
    for key, new in changes.items():
        shape = schedule.get(key, {}).get("piecewise", {"values": [], "at": []})
        first_step, _ = new[0]
        points = [point for point in zip(shape["at"], shape["values"], strict=True) if point[0] < first_step]
        points += new
        piecewise: dict[str, object] = {"values": [value for _, value in points], "at": [step for step, _ in points]}
        if len(new) > 1 or shape.get("linear"):
            piecewise["linear"] = True
        schedule[key] = {"piecewise": piecewise}
    return schedule


def by_key(schedules: Mapping[str, Any], known: Collection[str], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the dotted key of each hyperparameter with its schedule, such as ("advantage.gae_lambda", {"linear":
    {"end": 1.0}}), or {} for none. known: keys of numbers that may change; other keys are yielded as they are."""
    for name, values in schedules.items():
        key = f"{prefix}{name}"
        is_section = key not in known and any(other.startswith(f"{key}.") for other in known)
        if is_section and isinstance(values, Mapping):
            yield from by_key(values, known, f"{key}.")
        else:
            yield key, values


def schedulable(algo: Mapping[str, Any]) -> dict[str, type]:
    """Returns the dotted keys of the numbers that may be scheduled, each with the Config that declares it.

    These are numbers of the algorithm, of its parts, and of the sections `OTHER_PARTS`.
    """
    found = dict(_declared("algo", algo, ""))
    for name in OTHER_PARTS:
        section = algo.get(name)
        if isinstance(section, Mapping) and "name" in section:
            found |= _declared(name, section, f"{name}.")
    return found


def _declared(group: str, values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, type]]:
    """Yields the keys of the numbers of one part and of the parts in it, as in `schedulable`."""
    cls = registry.lookup(group, values["name"]).Config
    for key in scheduled_of(cls):
        yield f"{prefix}{key}", cls
    for key, part_group in parts_of(cls).items():
        section = values.get(key)
        if isinstance(section, Mapping) and "name" in section:
            yield from _declared(part_group, section, f"{prefix}{key}.")
