"""How each trial stands: how far it trained, its score there, and what became of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rlrun.dotted import show
from rlrun.errors import printable
from rlrun.sweep.trials import FRESH, WORST, Result, RungJob, Trial, Trials

MOST_SHOWN = 1000  # trials in a table or a picture


@dataclass(frozen=True)
class Standing:
    """One trial."""

    trial: Trial
    rung: int | None  # the furthest with a score
    score: float | None  # at that rung
    fresh: float | None  # score of the runs that measured it again, if none of them failed
    seconds: float  # of training per run up to that rung, mean
    state: str  # winner, failed, measured again, open, trained, or paused
    is_whole: bool  # its score is that at the last rung

    @property
    def number(self) -> int:
        return self.trial.number


def standings(trials: Trials) -> list[Standing]:
    """Returns all trials in order of their number."""
    open_trials = {job.trial for job in trials.open_jobs()}
    return [_standing(trial, trials, trial.number in open_trials) for trial in trials.trials]


def ranked(trials: Trials, found: Sequence[Standing]) -> list[Standing]:
    """Returns the trials with a score, best first."""
    return [found[trial.number] for trial in trials.best()]


def shown(trials: Trials) -> list[Standing]:
    """Returns the trials that tables and pictures show: best first, then those without a score."""
    found = standings(trials)
    return [*ranked(trials, found), *(one for one in found if one.score is None)][:MOST_SHOWN]


def _standing(trial: Trial, trials: Trials, is_open: bool) -> Standing:
    rung, score = None, None
    if not trial.failed:
        for candidate in range(trial.rung, -1, -1):
            score = trial.score(candidate)
            if score is not None:
                rung = candidate
                break
    seconds = [0.0]
    if rung is not None:
        seconds = [trial.results[job].seconds for job in trial.jobs(rung)]
    mean = sum(seconds) / len(seconds)
    fresh, state = trial.fresh_score(trials.last), _state(trial, trials, is_open)
    if fresh == WORST:
        fresh = None
    return Standing(trial, rung, score, fresh, mean, state, rung == trials.last)


def _state(trial: Trial, trials: Trials, is_open: bool) -> str:
    if trial.number == trials.winner:
        return "winner"
    if trial.failures:
        return "failed"
    if is_open:
        return "open"
    if trial.fresh_seeds:
        return "measured again"
    if trial.rung == trials.last:
        return "trained"
    return "paused"


def furthest(trial: Trial) -> Mapping[str, Result]:
    """Returns the result of each run of the search at its furthest rung, by folder.

    A trial that went on from the run of another one has only its last run, which holds the whole learning curve.
    """
    found: dict[str, Result] = {}
    for job in _by_rung(trial):
        if job.seed < FRESH and job.branch == len(trial.branches):
            found[job.folder] = trial.results[job]
    return found


class Totals(NamedTuple):
    """What all runs of a sweep took together, those on fresh seeds included."""

    runs: int
    failed: int
    steps: int
    seconds: float


def totals(trials: Trials, courses: Mapping[str, Sequence[int]]) -> Totals:
    """Returns what has been trained so far. courses: environment -> steps of the rungs."""
    runs: set[str] = set()
    failed: set[str] = set()
    steps, seconds = 0, 0.0
    for trial in trials.trials:
        failed |= trial.failures.keys()
        for job, result in trial.results.items():
            runs.add(job.folder)
            steps += job_steps(job, trials, courses)
            seconds += result.seconds
            if (before := continued(job, trials)) is not None:
                seconds -= trials.trials[before.trial].results[before].seconds
    return Totals(len(runs | failed), len(failed), steps, seconds)


def job_steps(job: RungJob, trials: Trials, courses: Mapping[str, Sequence[int]]) -> int:
    """Returns the steps of a job, without those that its run has trained for earlier rungs."""
    steps = courses[job.env]
    before = continued(job, trials)
    if before is None:
        return steps[job.rung]
    return steps[job.rung] - steps[before.rung]


def continued(job: RungJob, trials: Trials) -> RungJob | None:
    """Returns the job from whose snapshot another one goes on: of the same run, or of the run that was copied."""
    trial = trials.trials[job.trial]
    earlier = [one for one in trial.results if one.folder == job.folder and one.rung < job.rung]
    if earlier:
        return max(earlier, key=lambda one: one.rung)
    if job.branch:
        return trial.branches[job.branch - 1].source
    return None


def _by_rung(trial: Trial) -> list[RungJob]:
    return sorted(trial.results, key=lambda job: job.rung)


def differing(trials: Trials) -> dict[str, str]:
    """Returns the searched keys whose values differ between trials, each with its shortest unique ending."""
    keys = list(dict.fromkeys(key for trial in trials.trials for key in trial.values))
    kept = [key for key in keys if len({repr(trial.values.get(key)) for trial in trials.trials}) > 1]
    return short_names(kept or keys)


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """Returns for each key its shortest ending that no other key has: `algo.gamma` becomes `gamma`.

    The name of a part keeps the part: `algo.buffer.name` becomes `buffer.name`.
    """
    found = {}
    for key in keys:
        parts = key.split(".")
        shortest = 2 if parts[-1] == "name" else 1
        endings = (".".join(parts[start:]) for start in range(len(parts) - shortest, -1, -1))
        found[key] = next((one for one in endings if sum(_ends_with(other, one) for other in keys) == 1), key)
    return found


def _ends_with(key: str, ending: str) -> bool:
    return f".{key}".endswith(f".{ending}")


def values_text(values: Mapping[str, object], names: Mapping[str, str]) -> str:
    """Returns the values of a trial as text, for the keys of `names`, under their short names."""
    return printable(" ".join(f"{names[key]}={show(value)}" for key, value in values.items() if key in names))
