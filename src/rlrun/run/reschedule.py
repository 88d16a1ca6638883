"""New values of hyperparameters for a resumed run: they become schedules, which say from which step on they hold."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlrun.config.resumable import SCHEDULE
from rlrun.config.schema import run_config
from rlrun.core.scheduled import changed_at, schedulable
from rlrun.run.assemble import check_ranges
from rlrun.snapshot.store import Store, step_of

ALGO = "algo."


def rescheduled(path: Path, values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Returns the changes, with one of `algo.schedule` in place of those of numbers that may be scheduled.

    path: folder of the run; the numbers change at the step of its latest snapshot. values: its stored config.
    changes: new values by dotted key. Raises ConfigError if a number is out of its range.
    """
    algo = values.get("algo")
    if not isinstance(algo, dict) or not any(key.startswith(ALGO) for key in changes):
        return changes
    known = {*schedulable(algo)}
    numbers = {key.removeprefix(ALGO): value for key, value in changes.items() if key.removeprefix(ALGO) in known}
    if not numbers:
        return changes
    check_ranges(run_config(with_numbers(values, numbers)))
    latest = Store(path).latest()
    step = 0 if latest is None else step_of(latest)
    rest = {key: value for key, value in changes.items() if key.removeprefix(ALGO) not in numbers}
    return rest | {SCHEDULE: changed_at(algo, numbers, step)}


def with_numbers(values: dict[str, Any], numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a copy of a config with other numbers in `algo`, by dotted key."""
    changed = copy.deepcopy(values)
    for key, value in numbers.items():
        *sections, name = key.split(".")
        home = changed["algo"]
        for section in sections:
            home = home[section]
        home[name] = value
    return changed
