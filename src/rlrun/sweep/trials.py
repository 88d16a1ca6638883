"""The trials of a sweep: what was decided and found out so far, as a function of the events in the journal."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rlrun.formats.numbers import LAST_STEP, is_number, is_whole
from rlrun.rundir import folder_name
from rlrun.sweep.journal import Event

WORST = -math.inf  # score of a trial of which a run failed
FRESH = 1000  # first seed of the runs that measure the best trials again


@dataclass(frozen=True, order=True)
class RungJob:
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

    @property
    def is_sound(self) -> bool:
        """Whether these are finite numbers. They may be of any type, because they come from files."""
        times = is_number(self.seconds, 0) and is_whole(self.step, 0, LAST_STEP)
        return times and bool(self.evaluations) and all(map(is_number, [self.score, *self.evaluations]))


class Branch(NamedTuple):
    """A trial goes on from the run of another one."""

    rung: int  # at which it does
    source: RungJob


class Change(NamedTuple):
    """New values during a run."""

    step: int  # from which on they hold
    values: dict[str, object]


@dataclass
class Trial:
    """One setting of the searched keys."""

    number: int
    point: list[float]  # in the unit cube
    values: dict[str, object]  # that it trains with now
    envs: Sequence[str]  # in each of which it trains a run per seed
    seeds: int  # unless it is ruled out before
    seeds_started: int = 1  # these are 0, 1, ...
    ruled_out: bool = False  # no further seed starts
    rung: int = 0  # up to which it trains
    results: dict[RungJob, Result] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)  # folder of a run -> why it failed
    fresh_seeds: int = 0  # seeds that measure it again
    first_seed: int = 0
    branches: list[Branch] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)  # of the values since the start of its run
    start_values: dict[str, object] = field(default_factory=dict)  # that its run started with

    def __post_init__(self) -> None:
        self.start_values = self.values

    @property
    def failed(self) -> bool:
        """Whether a run of the search failed. Runs that measure the trial again count only for its `fresh_score`."""
        if not self.failures:
            return False
        return not self.failures.keys() <= {job.folder for job in self.fresh_jobs(self.rung)}

    @property
    def is_complete(self) -> bool:
        """Whether no further seed will start."""
        return self.ruled_out or self.seeds_started == self.seeds

    def jobs(self, rung: int, seeds: Iterable[int] | None = None) -> list[RungJob]:
        """Returns the jobs of a rung. seeds: default all that were started."""
        if seeds is not None:
            return [RungJob(self.number, rung, env, seed) for seed in seeds for env in self.envs]
        seeds, branch = self.course(rung)
        return [RungJob(self.number, rung, env, seed, branch) for seed in seeds for env in self.envs]

    def course(self, rung: int) -> tuple[Sequence[int], int]:
        """Returns the seeds with which it trains to a rung, and how often it went on from another run before."""
        branches = [branch for branch in self.branches if branch.rung < rung]
        first = branches[-1].source.seed if branches else self.first_seed
        return range(first, first + self.seeds_started), len(branches)

    def fresh_jobs(self, last: int) -> list[RungJob]:
        """Returns the jobs that measure it again. last: the last rung."""
        return self.jobs(last, range(FRESH, FRESH + self.fresh_seeds))

    def has_ended(self, jobs: Iterable[RungJob]) -> bool:
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

    def score_of(self, jobs: Iterable[RungJob]) -> float:
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
        self.is_final = False  # the best trials are measured again, and nothing is searched any more
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
                job = job_of(event)
                self.trials[job.trial].results[job] = result_of(event)
            case "failed":
                job = job_of(event)
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
        """Lets all trials train on, some of them with new values from the run of another one, which keeps its own."""
        for exploit in exploits:
            trial, source = self.trials[exploit["trial"]], self.trials[exploit["source"]]
            (job,) = source.jobs(source.rung)
            trial.branches.append(Branch(source.rung, job))
            trial.failures.clear()
            trial.values = exploit["values"]
            trial.start_values = source.start_values
            trial.changes = [*source.changes, Change(source.results[job].step, exploit["values"])]
        for trial in self.trials:
            trial.rung += 1

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
                self.is_final = True

    def open_jobs(self) -> list[RungJob]:
        """Returns the jobs without a result: those that are furthest first, then by trial and seed."""
        jobs = []
        for trial in self.trials:
            if trial.fresh_seeds:
                jobs += trial.fresh_jobs(self.last)
            elif not trial.failed and not self.time_is_up:
                jobs += trial.jobs(trial.rung)
        return sorted(filter(self._is_open, jobs), key=lambda job: (-job.rung, job.trial, job.seed, job.env))

    def _is_open(self, job: RungJob) -> bool:
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


def job_of(event: Event) -> RungJob:
    """Returns the job of which an event holds the result."""
    return RungJob(event["trial"], event["rung"], event["env"], event["seed"], event["branch"])


def result_of(event: Event) -> Result:
    """Returns the result that an event holds."""
    return Result(event["score"], event["evaluations"], event["seconds"], event["step"])


def _iqm(scores: Sequence[float]) -> float:
    """Returns the interquartile mean, like `report.statistics.iqm`, without numpy, whose import takes long."""
    cut = len(scores) // 4
    kept = sorted(scores)[cut : len(scores) - cut]
    return math.fsum(kept) / len(kept)
