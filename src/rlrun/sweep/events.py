"""Whether an event of a journal is possible. The journal of a copied folder may be untrusted."""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rlrun.sweep.journal import Event

if TYPE_CHECKING:
    from rlrun.sweep.trials import Trials

MOST = 100_000  # trials, and fresh seeds
RESULTS = ("scored", "failed")
DECISIONS = ("another_seed", "ruled_out", "promoted", "measured_again")


def check(event: Event, trials: "Trials") -> None:
    """Raises ValueError if no driver would write this event next, and KeyError or TypeError if a part of it is missing
    or of another type."""
    kind = event["event"]
    _check_numbers([event.get("at", 0.0)])
    if kind == "asked":
        if len(trials) + len(event["points"]) > MOST:
            raise ValueError
        for point in event["points"]:
            _check_numbers(point)
    elif kind in RESULTS:
        _check_trials([event["trial"]], trials)
        _check_result(event, trials)
    elif kind in DECISIONS:
        _check_trials(event["trials"], trials)
        _check_decision(event, trials)
    elif kind == "exploited":
        for exploit in event["exploits"]:
            _check_trials([exploit["trial"], exploit["source"]], trials)
    elif kind == "won":
        _check_trials([event["trial"]], trials)
        if not trials.trials[event["trial"]].results:
            raise ValueError
    elif kind != "time_is_up":
        raise ValueError


def _check_trials(numbers: Iterable[Any], trials: "Trials") -> None:
    for number in numbers:
        _check_whole(number, 0, len(trials) - 1)


def _check_whole(value: Any, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise ValueError


def _check_numbers(values: Iterable[Any]) -> None:
    for value in values:
        if isinstance(value, bool) or not math.isfinite(value):
            raise ValueError


def _check_result(event: Event, trials: "Trials") -> None:
    _check_whole(event["rung"], 0, trials.last)
    _check_whole(event["seed"], 0, 2**31)
    _check_whole(event["branch"], 0, trials.last)
    if event["env"] not in trials.envs:
        raise ValueError
    if event["event"] == "failed":
        if not isinstance(event["why"], str):
            raise ValueError
        return
    if not event["evaluations"]:
        raise ValueError
    _check_whole(event["step"], 0, 2**62)
    _check_numbers([event["score"], event["seconds"], *event["evaluations"]])


def _check_decision(event: Event, trials: "Trials") -> None:
    for number in event["trials"]:
        trial = trials.trials[number]
        if event["event"] == "another_seed" and trial.seeds_started >= trial.seeds:
            raise ValueError
        if event["event"] == "promoted" and trial.rung >= trials.last:
            raise ValueError
    if event["event"] == "measured_again":
        _check_whole(event["seeds"], 1, MOST)
