"""New values of hyperparameters for a resumed run: they become schedules, which say from which step on they hold."""

from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

from rlrun import dotted
from rlrun.config.resumable import LR_SCHEDULE, SCHEDULE, TOTAL_STEPS, news
from rlrun.config.schema import run_config
from rlrun.errors import ConfigError
from rlrun.schedules.learning_rate import Schedule
from rlrun.schedules.numbers import Point, Schedules, by_key, changed_at, field_of, schedulable, schedule_of_rate
from rlrun.settings import number_fault
from rlrun.types import Context

ALGO = "algo."
STATE = "schedule._extra_state"  # end of the state's key of a `Schedule`


def rescheduled(values: dict[str, Any], words: dict[str, Any], step: int) -> dict[str, Any]:
    """Returns the settings that change when a run is resumed at a step, by dotted key.

    These are the settings that the user typed with other values than the stored ones. Numbers that may be scheduled,
    and schedules of learning rates, become points of `algo.schedule`.
    values: the stored config. words: the settings that the user typed. Raises ConfigError if a number is out of its
    range, or if a schedule cannot begin at this step.
    """
    algo = values.get("algo")
    if not isinstance(algo, dict) or not any(key.startswith(ALGO) for key in words):
        return news(values, words)
    algo = algo | {"schedule": words.get(SCHEDULE, algo.get("schedule") or {})}
    numbers = numbers_of(algo)
    typed = {key: words[ALGO + key] for key in numbers if ALGO + key in words}
    run_config(values)  # checks the stored config, which may be untrusted
    _check_numbers(algo, typed)
    scheduled = dict(by_key(algo["schedule"]))
    total = words.get(TOTAL_STEPS, values["trainer"]["total_steps"])
    rates = schedules_of_rates(algo)
    known = [setting for setting, _ in rates.values()]
    for key in words:
        if key.startswith(ALGO) and key.endswith(LR_SCHEDULE) and key not in known:
            raise ConfigError(f"{key}: schedules no learning rate that can be changed in a resumed run")
    points: dict[str, list[Point]] = {}
    for key, number in numbers.items():
        setting, schedule = rates.get(key, ("", {}))
        if setting in words:
            points[key] = points_of_rate(setting, words[setting], number, typed.get(key), step, total)
        elif key in typed and (typed[key] != number or key in scheduled or schedule):
            points[key] = [(step, typed[key])]
    if not points:
        return news(values, words)
    replaced = set()  # schedules of learning rates that points replace
    for key, (setting, schedule) in rates.items():
        if key in points and (schedule or setting in words):
            replaced.add(setting)
    for key, (setting, _) in rates.items():
        if setting in replaced and key not in points:
            raise ConfigError(f"{setting}: ends at step {step}, but schedules algo.{key} too; set that as well")
    remaining = {key: value for key, value in words.items() if key.removeprefix(ALGO) not in points}
    for setting in replaced:
        remaining[setting] = {}
    return news(values, remaining) | {SCHEDULE: changed_at(algo, points)}


def _check_numbers(algo: Mapping[str, object], typed: Mapping[str, float]) -> None:
    """Raises ConfigError with all typed numbers that are out of their range. typed: by dotted key below `algo`."""
    homes = schedulable(algo)
    faults = []
    for key, number in typed.items():
        fault = number_fault(homes[key], field_of(key), number)
        if fault:
            faults.append(f"{ALGO}{key}={dotted.show(number)}: {fault}")
    if faults:
        raise ConfigError(*faults)


def numbers_of(algo: Mapping[str, Any]) -> dict[str, float]:
    """Returns the numbers of an algorithm and its parts that may be scheduled, by dotted key."""
    values = {key: dotted.lookup(key, algo) for key in schedulable(algo)}
    return {key: value for key, value in values.items() if isinstance(value, int | float)}


def schedules_of_rates(algo: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
    """Returns (key, value) of the `lr_schedule` of each learning rate, by the dotted key of the rate."""
    return {key: schedule_of_rate(key, algo) for key in numbers_of(algo) if key.endswith("learning_rate")}


def fitted(state: Mapping[str, Any], loop: nn.Module) -> dict[str, Any]:
    """Returns the state of a snapshot, fitted to the schedules of a resumed loop.

    The state of learning rate schedules that the loop no longer has is left out. Numbers that had no schedule start
    with its first values.
    """
    present = {f"{name}._extra_state" for name, _ in loop.named_modules()}
    kept = {key: value for key, value in state.items() if not key.endswith(STATE) or key in present}
    return loop.get_submodule("schedules").state_dict(prefix="schedules.") | kept


def zero_after_end(agent: nn.Module, schedules: Schedules, algo: Mapping[str, Any], last: Context) -> Iterator[str]:
    """Yields a line for each number that is 0 after the end of its schedule, so that nothing is learned from then on.

    last: the counters at the last step of the run.
    """
    total_steps = last.env_steps + 1
    fact = f"is 0 after the end of its schedule and up to step {total_steps:,}, so nothing is learned; resume with"
    at_zero = any(module.ends_at_zero for module in agent.modules() if isinstance(module, Schedule))
    for key, (setting, schedule) in schedules_of_rates(algo).items():
        if schedule and at_zero:
            yield f"algo.{key} {fact} {setting}={{linear: {{}}}} (0 at the new end), {setting}={{}} or algo.{key}=..."
    for key, number in schedules.numbers.items():
        if number.is_excluded_zero(last):
            yield f"algo.{key} {fact} algo.{key}={number.start:g}"


def points_of_rate(setting: str, schedule: Any, rate: float, typed: float | None, step: int, total: int) -> list[Point]:
    """Returns the points of a learning rate whose `lr_schedule` the user typed when resuming a run at a step.

    With {}, the rate is constant: `typed`, or `rate` if that is None. With {linear: {}}, it falls from `typed` to 0 at
    the new total, or as in a run that had this total from its start if `typed` is None.
    rate: the learning rate in the config. typed: a learning rate that the user typed too. total: steps of the run.
    """
    start = rate
    if typed is not None:
        start = typed
    if schedule == {}:
        return [(step, start)]
    if schedule != {"linear": {}}:
        raise ConfigError(
            f"{setting}={dotted.show(schedule)}: cannot begin in the middle of a run; {{}} is a constant learning "
            "rate, {linear: {}} falls to 0 at trainer.total_steps"
        )
    if total <= step:
        raise ConfigError(
            f"{setting}={dotted.show(schedule)}: the run is at step {step:,}; add a larger total_steps=..."
        )
    if typed is None:
        start = rate * (1 - step / total)
    return [(step, start), (total, 0.0)]
