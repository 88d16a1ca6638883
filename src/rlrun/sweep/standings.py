"""The standing of each trial: how far it trained, its score there, and its state."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rlrun.dotted import show
from rlrun.errors import printable
from rlrun.sweep.trials import FRESH, WORST, Result, RungJob, Trial, Trials

MOST_SHOWN = 1000  # trials in a table or a picture


@dataclass(frozen=True)
class Standing:
    """The standing of one trial."""

    trial: Trial
    rung: int | None  # the highest rung with a score
    score: float | None  # at that rung
    fresh: float | None  # score on fresh seeds; None until all runs on them have ended, or if one failed
    seconds: float  # training time up to that rung, mean over runs
    state: str  # winner, failed, open (a job is to be run), measured again, trained (to the last rung), or paused
    is_whole: bool  # whether that rung is the last

    @property
    def number(self) -> int:
        return self.trial.number


def standings(trials: Trials) -> list[Standing]:
    """Returns the standings of all trials by number."""
    open_trials = {job.trial for job in trials.open_jobs()}
    return [_standing(trial, trials, trial.number in open_trials) for trial in trials.trials]


def ranked(trials: Trials, found: Sequence[Standing]) -> list[Standing]:
    """Returns the standings of the trials with a score, best first. found: the standings of all."""
    return [found[trial.number] for trial in trials.best()]


def shown(trials: Trials) -> list[Standing]:
    """Returns the trials that tables and pictures show, at most MOST_SHOWN: best first, then those without a score."""
    found = standings(trials)
    return [*ranked(trials, found), *(one for one in found if one.score is None)][:MOST_SHOWN]


def _standing(trial: Trial, trials: Trials, is_open: bool) -> Standing:
    rung = None
    score = None
    mean = 0.0
    highest = trial.highest_score()
    if highest is not None:
        rung, score = highest
        seconds = [trial.results[job].seconds for job in trial.jobs(rung)]
        mean = sum(seconds) / len(seconds)
    fresh = trial.fresh_score()
    if fresh == WORST:
        fresh = None
    return Standing(trial, rung, score, fresh, mean, _state(trial, trials, is_open), rung == trials.last_rung)


def _state(trial: Trial, trials: Trials, is_open: bool) -> str:
    if trial.number == trials.winner:
        return "winner"
    if trial.failures:
        return "failed"
    if is_open:
        return "open"
    if trial.fresh_seeds:
        return "measured again"
    if trial.rung == trials.last_rung:
        return "trained"
    return "paused"


def last_results(trial: Trial) -> Mapping[str, Result]:
    """Returns the result of each run of the search at its highest rung, by folder.

    Runs that an exploit has replaced by a copy of another trial's run are left out, because the copy holds the whole
    learning curve. Runs on fresh seeds are left out too.
    """
    found: dict[str, Result] = {}
    for job in sorted(trial.results, key=lambda job: job.rung):
        is_of_search = job.seed < FRESH
        if is_of_search and job.branch == len(trial.branches):
            found[job.folder] = trial.results[job]
    return found


class Totals(NamedTuple):
    """Sums over all runs of a sweep, those on fresh seeds included."""

    runs: int
    failed: int
    steps: int
    seconds: float  # training time


def totals(trials: Trials, rung_steps: Mapping[str, Sequence[int]]) -> Totals:
    """Returns what has been trained so far. rung_steps: environment -> step of each rung."""
    runs: set[str] = set()
    failed: set[str] = set()
    steps = 0
    seconds = 0.0
    for trial in trials.trials:
        failed |= trial.failures.keys()
        for job, result in trial.results.items():
            runs.add(job.folder)
            steps += job_steps(job, trials, rung_steps)
            seconds += result.seconds
            before = predecessor(job, trials)
            if before is not None:  # the time of a result is that since the start of the run
                seconds -= trials.trials[before.trial].results[before].seconds
    return Totals(len(runs | failed), len(failed), steps, seconds)


def job_steps(job: RungJob, trials: Trials, rung_steps: Mapping[str, Sequence[int]]) -> int:
    """Returns the steps of a job, without those that its run had trained before the job."""
    steps = rung_steps[job.env]
    before = predecessor(job, trials)
    if before is None:
        return steps[job.rung]
    return steps[job.rung] - steps[before.rung]


def predecessor(job: RungJob, trials: Trials) -> RungJob | None:
    """Returns the job whose snapshot a job continues, in the same run or in the run that was copied; None if the job
    starts a run."""
    trial = trials.trials[job.trial]
    earlier = [one for one in trial.results if one.folder == job.folder and one.rung < job.rung]
    if earlier:
        return max(earlier, key=lambda one: one.rung)
    if job.branch:
        return trial.branches[job.branch - 1].source
    return None


def differing_keys(trials: Trials) -> dict[str, str]:
    """Returns the short names of the searched keys whose values differ between trials, or of all keys if none do."""
    keys = list(dict.fromkeys(key for trial in trials.trials for key in trial.values))
    differing = [key for key in keys if len({repr(trial.values.get(key)) for trial in trials.trials}) > 1]
    return short_names(differing or keys)


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
