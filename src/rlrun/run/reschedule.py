"""New values of hyperparameters for a resumed run: they become schedules, which say from which step on they hold."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from torch import nn

from rlrun import dotted
from rlrun.config.resumable import SCHEDULE, TOTAL_STEPS, news
from rlrun.config.schema import run_config
from rlrun.errors import ConfigError
from rlrun.schedules.learning_rate import NAMES
from rlrun.schedules.numbers import EXAMPLE, Point, Schedules, by_key, changed_at, field_of, schedulable, shape_of
from rlrun.schedules.shape import LinearSchedule
from rlrun.settings import number_fault
from rlrun.types import Context

ALGO = "algo."
STATE = "schedules."  # start of the keys of the schedules' state


def rescheduled(values: dict[str, Any], words: dict[str, Any], step: int) -> dict[str, Any]:
    """Returns the settings that change when a run is resumed at a step, by dotted key.

    These are the settings that the user typed with other values than the stored ones. Numbers that may be scheduled,
    and their schedules, become points of `algo.schedule`. Numbers whose schedule the user did not type keep it.
    values: the stored config. words: the settings that the user typed. Raises ConfigError if a number is out of its
    range, or if a schedule cannot begin at this step.
    """
    algo = values.get("algo")
    if not isinstance(algo, dict) or not any(key.startswith(ALGO) for key in words):
        return news(values, words)
    known = schedulable(algo)
    numbers = {key: dotted.lookup(key, algo) for key in known}
    numbers = {key: value for key, value in numbers.items() if isinstance(value, int | float)}
    typed = {key: words[ALGO + key] for key in numbers if ALGO + key in words}
    run_config(values)  # checks the stored config, which may be untrusted
    _check_numbers(known, typed)
    stored = dict(by_key(algo.get("schedule") or {}, known))
    total = words.get(TOTAL_STEPS, values["trainer"]["total_steps"])
    kept = dict(stored)
    points: dict[str, list[Point]] = {}
    for key, schedule in typed_schedules(words, stored, known).items():
        new = None
        if key in numbers:
            new = points_of(key, schedule, numbers[key], typed.get(key), step, total)
        if new is not None:
            points[key] = new
        elif schedule != stored.get(key):
            check_begins(key, schedule)
            kept[key] = schedule
    for key, number in typed.items():
        if key not in points and (number != numbers[key] or key in kept):
            points[key] = [(step, number)]
    remaining = {}
    for key, value in words.items():
        if key.removeprefix(ALGO) not in typed and not key.startswith(SCHEDULE):
            remaining[key] = value
    if points or kept != stored:
        remaining[SCHEDULE] = changed_at(algo | {"schedule": kept}, points)
    return news(values, remaining)


def typed_schedules(words: Mapping[str, object], stored: Iterable[str], known: Collection[str]) -> dict[str, object]:
    """Returns the schedules that the user typed, by dotted key below `algo`; {} for numbers that are to be constant.

    stored: keys that have a schedule. known: keys of numbers that may change.
    """
    typed: dict[str, object] = {}
    for key, value in words.items():
        if key.startswith(f"{SCHEDULE}."):
            typed |= dict(by_key({key.removeprefix(f"{SCHEDULE}."): value}, known))
        elif key == SCHEDULE and isinstance(value, dict):
            whole = value or {number: {} for number in stored}
            typed |= dict(by_key(whole, known))
        elif key == SCHEDULE:
            raise ConfigError(f"{key}={dotted.show(value)}: must be a section, such as {{learning_rate: {EXAMPLE}}}")
    return typed


def _check_numbers(homes: Mapping[str, type], typed: Mapping[str, float]) -> None:
    """Raises ConfigError with all typed numbers that are out of their range. homes, typed: by dotted key."""
    faults = []
    for key, number in typed.items():
        fault = number_fault(homes[key], field_of(key), number)
        if fault:
            faults.append(f"{ALGO}{key}={dotted.show(number)}: {fault}")
    if faults:
        raise ConfigError(*faults)


def fitted(state: Mapping[str, Any], loop: nn.Module) -> dict[str, Any]:
    """Returns the state of a snapshot, fitted to the schedules of a resumed loop.

    The state of schedules that the loop no longer has is left out. Numbers that had no schedule start with its first
    values.
    """
    present = loop.get_submodule("schedules").state_dict(prefix=STATE)
    kept = {key: value for key, value in state.items() if not key.startswith(STATE) or key in present}
    return present | kept


def zero_after_end(schedules: Schedules, last: Context) -> Iterator[str]:
    """Yields a line for each number that is 0 after the end of its schedule, so that nothing is learned from then on.

    last: the counters at the last step of the run.
    """
    total_steps = last.env_steps + 1
    fact = f"is 0 after the end of its schedule and up to step {total_steps:,}, so nothing is learned; resume with"
    for key, number in schedules.numbers.items():
        if number.is_excluded_zero(last):
            again = f"{SCHEDULE}={{{key}: {EXAMPLE}}} (0 at the new end)"
            yield f"algo.{key} {fact} {again} or algo.{key}={number.start:g}"


def points_of(
    key: str, schedule: object, number: float, typed: float | None, step: int, total: int
) -> list[Point] | None:
    """Returns the points of a number whose schedule the user typed when resuming a run at a step.

    With {}, the number is constant: `typed`, or `number` if that is None. With {linear: ...}, it changes from `typed`
    to the end of the schedule, or if `typed` is None as in a run that had this schedule and this total from its start.
    Other schedules are not expressed by points: returns None.
    number: the value in the config. typed: a value that the user typed too. total: steps of the run.
    """
    start = number
    if typed is not None:
        start = typed
    if schedule == {}:
        return [(step, start)]
    setting = f"{SCHEDULE}.{key}"
    shape = shape_of(schedule, number, setting)
    if type(shape) is not LinearSchedule:
        return None
    end = shape.last_step(total)
    if end <= step:
        raise ConfigError(
            f"{setting}={dotted.show(schedule)}: the run is at step {step:,}; add a larger total_steps=..."
        )
    if typed is None:
        start = shape.value_at(number, Context(0, step, step / total))
    return [(step, start), (end, shape.end)]


def check_begins(key: str, schedule: object) -> None:
    """Raises ConfigError for a new schedule that is one of torch's, which count updates from the start of the run."""
    if isinstance(schedule, dict) and {*schedule} & {*NAMES}:
        raise ConfigError(
            f"{SCHEDULE}.{key}={dotted.show(schedule)}: cannot begin in the middle of a run; {{}} is a constant "
            f"learning rate, {EXAMPLE} falls to 0 at trainer.total_steps"
        )
