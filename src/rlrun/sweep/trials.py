"""The trials of a sweep: what was decided and found out so far, as a function of the events in the journal."""

import copy
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rlrun.errors import ConfigError
from rlrun.rundir import folder_name
from rlrun.sweep.events import check
from rlrun.sweep.journal import NAME, Event

WORST = -math.inf  # score of a trial of which a run failed
FRESH = 1000  # first seed of the runs that measure the best trials again


@dataclass(frozen=True, order=True)
class Job:
    """One run that trains to a rung."""

    trial: int
    rung: int
    env: str  # as typed
    seed: int
    branch: int = 0  # how often the trial went on from the run of another one

    @property
    def folder(self) -> str:
        """The folder of the run below `trials/`. Jobs of all rungs continue the same run."""
        name = f"{self.trial:04}-{folder_name(self.env)}-s{self.seed}"
        if self.branch:
            name += f"-b{self.branch}"
        return name


class Result(NamedTuple):
    """The result of a job."""

    score: float
    evaluations: list[float]  # the metric at each evaluation up to the rung, normalised
    seconds: float  # of training up to the rung
    step: int  # of the last evaluation


class Branch(NamedTuple):
    """A trial goes on from the run of another one."""

    rung: int  # at which it does
    source: Job


class Change(NamedTuple):
    """New values during a run."""

    step: int  # from which on they hold
    values: dict[str, Any]


@dataclass
class Trial:
    """One setting of the searched keys."""

    number: int
    point: list[float]  # in the unit cube
    values: dict[str, Any]  # that it trains with now
    envs: Sequence[str]  # in each of which it trains a run per seed
    seeds: int  # unless it is ruled out before
    seeds_started: int = 1  # these are 0, 1, ...
    ruled_out: bool = False  # no further seed starts
    rung: int = 0  # up to which it trains
    results: dict[Job, Result] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)  # folder of a run -> why it failed
    fresh_seeds: int = 0  # seeds that measure it again
    first_seed: int = 0
    branches: list[Branch] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)  # of the values since the start of its run
    start_values: dict[str, Any] = field(default_factory=dict)  # that its run started with

    def __post_init__(self) -> None:
        self.start_values = self.values

    @property
    def failed(self) -> bool:
        return bool(self.failures)

    @property
    def is_complete(self) -> bool:
        """Whether no further seed will start."""
        return self.ruled_out or self.seeds_started == self.seeds

    def jobs(self, rung: int, seeds: Iterable[int] | None = None) -> list[Job]:
        """Returns the jobs of a rung. seeds: default all that were started."""
        if seeds is not None:
            return [Job(self.number, rung, env, seed) for seed in seeds for env in self.envs]
        branches = [branch for branch in self.branches if branch.rung < rung]
        first = branches[-1].source.seed if branches else self.first_seed
        seeds = range(first, first + self.seeds_started)
        return [Job(self.number, rung, env, seed, len(branches)) for seed in seeds for env in self.envs]

    def fresh_jobs(self, last: int) -> list[Job]:
        """Returns the jobs that measure it again. last: the last rung."""
        return self.jobs(last, range(FRESH, FRESH + self.fresh_seeds))

    def has_ended(self, jobs: Iterable[Job]) -> bool:
        """Returns whether all these jobs have a result."""
        return all(job in self.results for job in jobs)

    def score(self, rung: int) -> float | None:
        """Returns the score at a rung, or None if it is not final yet."""
        if self.failed:
            return WORST
        jobs = self.jobs(rung)
        if not self.is_complete or not self.has_ended(jobs):
            return None
        return self.score_of(jobs)

    def fresh_score(self, last: int) -> float | None:
        """Returns the score of the runs that measured it again, or None if not all have ended. last: the last rung."""
        jobs = self.fresh_jobs(last)
        if any(job.folder in self.failures for job in jobs):
            return WORST
        if not jobs or not self.has_ended(jobs):
            return None
        return self.score_of(jobs)

    def score_of(self, jobs: Iterable[Job]) -> float:
        """Returns the interquartile mean of the scores of jobs that have ended."""
        return _iqm([self.results[job].score for job in jobs])

    def level(self, rung: int) -> float:
        """Returns the interquartile mean of the last evaluations at a rung, by which equal scores are ranked."""
        return _iqm([self.results[job].evaluations[-1] for job in self.jobs(rung)])


class Trials:
    """All trials by number. `apply` changes them by one event; a restarted driver applies the whole journal."""

    def __init__(self, envs: Sequence[str], seeds: int, last: int):
        """envs: in which each trial trains. seeds: of each trial. last: the last rung."""
        self.envs, self.seeds, self.last = envs, seeds, last
        self.trials: list[Trial] = []
        self.winner: int | None = None
        self.time_is_up = False  # no run starts but those that measure the best trials again
        self.seconds = 0.0  # that drivers have worked up to the last event

    def __len__(self) -> int:
        return len(self.trials)

    def apply(self, event: Event) -> None:
        """Applies an event. The keys of each kind stand here and nowhere else."""
        self.seconds = event.get("at", self.seconds)
        match event["event"]:
            case "asked":
                for place, (point, values) in enumerate(zip(event["points"], event["values"], strict=True)):
                    trial = Trial(len(self.trials), point, values, self.envs, self.seeds)
                    if "seeds" in event:
                        trial.first_seed = event["seeds"][place]
                    self.trials.append(trial)
            case "scored":
                job = _job(event)
                result = Result(event["score"], event["evaluations"], event["seconds"], event["step"])
                self.trials[job.trial].results[job] = result
            case "failed":
                job = _job(event)
                self.trials[job.trial].failures[job.folder] = event["why"]
            case "exploited":
                self._exploit(event["exploits"])
            case "time_is_up":
                self.time_is_up = True
            case "won":
                self.winner = event["trial"]
            case _:
                for number in event["trials"]:
                    self._apply_to(self.trials[number], event)

    def _exploit(self, exploits: Sequence[Event]) -> None:
        """Lets all trials train on, some of them from the run of another one, with new values."""
        now = copy.deepcopy(self.trials)  # all decisions are about the trials as they are before any of them
        for trial in self.trials:
            trial.rung += 1
        for exploit in exploits:
            trial, source = self.trials[exploit["trial"]], now[exploit["source"]]
            (job,) = source.jobs(source.rung)
            trial.branches.append(Branch(source.rung, job))
            trial.failures.clear()
            trial.values = exploit["values"]
            trial.start_values = source.start_values
            trial.changes = [*source.changes, Change(source.results[job].step, exploit["values"])]

    def _apply_to(self, trial: Trial, event: Event) -> None:
        """Applies a decision about several trials to one of them."""
        match event["event"]:
            case "another_seed":
                trial.seeds_started += 1
            case "ruled_out":
                trial.ruled_out = True
            case "promoted":
                trial.rung += 1
            case "measured_again":
                trial.rung = self.last
                trial.fresh_seeds = event["seeds"]

    def open_jobs(self) -> list[Job]:
        """Returns the jobs without a result: those that are furthest first, then by trial and seed."""
        jobs = []
        for trial in self.trials:
            if trial.fresh_seeds:
                jobs += trial.fresh_jobs(self.last)
            elif not trial.failed and not self.time_is_up:
                jobs += trial.jobs(trial.rung)
        return sorted(filter(self._is_open, jobs), key=lambda job: (-job.rung, job.trial, job.seed, job.env))

    def _is_open(self, job: Job) -> bool:
        trial = self.trials[job.trial]
        return job not in trial.results and job.folder not in trial.failures

    def best(self) -> list[Trial]:
        """Returns the trials with a score, best first: by the furthest rung with a score, then by score."""
        found = []
        for trial in self.trials:
            for rung in range(trial.rung, -1, -1):
                score = trial.score(rung)
                if score is not None and score > WORST:
                    found.append((-rung, -score, -trial.level(rung), trial.number))
                    break
        return [self.trials[number] for *_, number in sorted(found)]


def _job(event: Event) -> Job:
    return Job(event["trial"], event["rung"], event["env"], event["seed"], event["branch"])


def _iqm(scores: Sequence[float]) -> float:
    """Returns the interquartile mean, like `report.statistics.iqm`, without numpy, whose import takes long."""
    cut = len(scores) // 4
    kept = sorted(scores)[cut : len(scores) - cut]
    return math.fsum(kept) / len(kept)


def apply_all(
    trials: Trials,
    events: Sequence[Event],
    keys: Collection[str],
    before: Callable[[Event, Trials], None] | None = None,
    file: Path = Path(NAME),
) -> Trials:
    """Applies the events of a journal in order and returns the trials. before: called before an event is applied.
    file: the journal, for messages.

    Raises ConfigError for an event that does not fit, or that sets other keys than the searched ones.
    """
    for line, event in enumerate(events, start=1):
        try:
            check(event, trials)
            if before is not None:
                before(event, trials)
            trials.apply(event)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError):
            raise ConfigError(f"{file}: line {line} does not fit the lines before it") from None
    for trial in trials.trials:
        if foreign := trial.values.keys() - keys:
            raise ConfigError(f"{file}: trial {trial.number} sets {min(foreign)}, which is not searched")
    return trials
