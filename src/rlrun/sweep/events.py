"""Applies the events of a journal, which may be untrusted: the folder of a sweep may be a copy."""

from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

from rlrun.errors import ConfigError
from rlrun.formats.numbers import is_number, is_whole
from rlrun.sweep.finals import finals
from rlrun.sweep.journal import NAME, Event
from rlrun.sweep.scoring import is_score_of
from rlrun.sweep.settings import PbtConfig, SweepConfig
from rlrun.sweep.space import Space
from rlrun.sweep.trials import FRESH, WORST, Trial, Trials, job_of, result_of


def apply_all(
    trials: Trials,
    events: Iterable[Event],
    cfg: SweepConfig,
    space: Space,
    before: Callable[[Event, Trials], None] | None = None,
    file: Path = Path(NAME),
) -> Trials:
    """Applies the events of a journal in order and returns the trials. before: called before an event is applied.
    file: the journal, for messages.

    Raises ConfigError for an event that no driver of this sweep would write after the events before it.
    """
    for line, event in enumerate(events, start=1):
        try:
            possible = is_possible(event, trials, cfg, space)
        except (KeyError, IndexError, TypeError, AttributeError):
            possible = False
        if not possible:
            raise ConfigError(f"{file}: line {line} does not fit the lines before it")
        if before is not None:
            before(event, trials)
        trials.apply(event)
    return trials


def is_possible(event: Event, trials: Trials, cfg: SweepConfig, space: Space) -> bool:
    """Returns whether a driver could write this event next. Raises KeyError, IndexError, TypeError or AttributeError if
    an entry is missing or has another type."""
    kind = event["event"]
    is_population = isinstance(cfg.kind, PbtConfig)
    if trials.winner is not None or not is_number(event.get("at", 0.0), 0):
        return False
    if kind in ("scored", "failed"):
        return _is_result(event, trials, cfg)
    if kind == "time_is_up":
        return not trials.time_is_up
    if kind in ("won", "measured_again"):
        return not trials.open_jobs() and _is_final(event, finals(trials, cfg))
    if trials.finals_have_begun or trials.time_is_up:
        return False
    if kind == "asked":
        return _is_asked(event, trials, cfg, space)
    if kind == "exploited":
        return is_population and _is_exploited(event, trials, space)
    if is_population or not _are_distinct(event["trials"], range(len(trials))):
        return False
    chosen = [trials.trials[number] for number in event["trials"]]
    if kind == "promoted":
        return all(trial.rung < trials.last_rung and _has_score(trial, trial.rung) for trial in chosen)
    return kind in ("another_seed", "ruled_out") and all(trial.needs_seed_decision for trial in chosen)


def _is_result(event: Event, trials: Trials, cfg: SweepConfig) -> bool:
    if not is_whole(event["trial"], 0, len(trials) - 1):
        return False
    trial, rung, seed = trials.trials[event["trial"]], event["rung"], event["seed"]
    if not is_whole(rung, 0, trial.rung) or event["env"] not in trial.envs:
        return False
    seeds, branch = trial.seeds_and_branch(rung)
    if rung == trials.last_rung and is_whole(seed, FRESH, FRESH + trial.fresh_seeds - 1):
        branch = 0
    elif not is_whole(seed, seeds[0], seeds[-1]):
        return False
    if not is_whole(event["branch"], branch, branch):
        return False
    job = job_of(event)
    if job in trial.results or job.folder in trial.failures:
        return False
    if event["event"] == "failed":
        return isinstance(event["why"], str)
    result = result_of(event)
    return result.is_sound and is_score_of(result, cfg)


def _is_final(event: Event, decision: Event | None) -> bool:
    """Returns whether an event is this decision about the end of the sweep."""
    if decision is None or event["event"] != decision["event"]:
        return False
    if decision["event"] == "won":
        return is_whole(event["trial"], decision["trial"], decision["trial"])
    if not is_whole(event["seeds"], decision["seeds"], decision["seeds"]):
        return False
    return event["trials"] == decision["trials"] and _are_distinct(event["trials"], decision["trials"])


def _is_asked(event: Event, trials: Trials, cfg: SweepConfig, space: Space) -> bool:
    points, values = event["points"], event["values"]
    if not 0 < len(points) == len(values) or len(trials) + len(points) > cfg.trials:
        return False
    if isinstance(cfg.kind, PbtConfig):
        seeds = event["seeds"]
        if len(trials) or seeds != [*range(len(points))] or not all(type(seed) is int for seed in seeds):
            return False
    elif "seeds" in event:
        return False
    if not all(map(space.has_point, points)) or not all(map(space.has_values, values)):
        return False
    return all(map(space.gives, points, values))


def _is_exploited(event: Event, trials: Trials, space: Space) -> bool:
    changed = [exploit["trial"] for exploit in event["exploits"]]
    rung = trials.trials[0].rung
    if rung >= trials.last_rung or (changed and not _are_distinct(changed, range(len(trials)))):
        return False
    for trial in trials.trials:
        if trial.score(rung) is None or (trial.failed and trial.number not in changed):
            return False
    for exploit in event["exploits"]:
        if not is_whole(exploit["source"], 0, len(trials) - 1) or exploit["source"] in changed:
            return False
        source = trials.trials[exploit["source"]]
        if not space.has_values(exploit["values"]) or exploit["values"].keys() != source.values.keys():
            return False
    return True


def _are_distinct(numbers: Any, allowed: Collection[int]) -> bool:
    """Returns whether these are one or more of the allowed numbers of trials, each once."""
    if not all(type(number) is int and number in allowed for number in numbers):
        return False
    return 0 < len(numbers) == len({*numbers})


def _has_score(trial: Trial, rung: int) -> bool:
    score = trial.score(rung)
    return score is not None and score > WORST
