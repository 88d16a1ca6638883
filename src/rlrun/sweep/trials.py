"""The trials of a sweep: all decisions and results so far, computed from the events of the journal."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rlrun.formats.numbers import LAST_STEP, is_number, is_whole
from rlrun.rundir import folder_name
from rlrun.sweep.journal import Event

WORST = -math.inf  # score of a trial with a failed run
# After the search, new runs of the best trials train with fresh seeds: FRESH, FRESH + 1, ...
FRESH = 1000


@dataclass(frozen=True, order=True)
class RungJob:
    """One run that trains to a rung."""

    trial: int
    rung: int
    env: str  # as typed
    seed: int
    branch: int = 0  # number of exploits of the trial before this job; each has replaced its run

    @property
    def folder(self) -> str:
        """The folder of the run below `trials/`. Jobs that differ only in their rung train the same run."""
        name = f"{self.trial:04}-{folder_name(self.env)}-s{self.seed}"
        if self.branch:
            name += f"-b{self.branch}"
        return name


class Result(NamedTuple):
    """The result of a job."""

    score: float
    evaluations: list[float]  # the metric at each evaluation up to the rung, normalised
    seconds: float  # training time up to the rung
    step: int  # step of the last evaluation

    @property
    def is_sound(self) -> bool:
        """Whether all values are finite numbers. They come from files, so they may be of any type."""
        if not is_number(self.seconds, 0) or not is_whole(self.step, 0, LAST_STEP):
            return False
        return bool(self.evaluations) and all(map(is_number, [self.score, *self.evaluations]))


class Branch(NamedTuple):
    """An exploit of population-based training: a trial leaves its run and continues a copy of another trial's run."""

    rung: int  # the last rung of the run that the trial leaves
    source: RungJob  # the job whose run is copied


class Change(NamedTuple):
    """New values of the searched keys during a run."""

    step: int  # first step with these values
    values: dict[str, object]


@dataclass
class Trial:
    """One setting of the searched keys, and its runs: one for each environment and seed."""

    number: int
    point: list[float]  # in the unit cube
    values: dict[str, object]  # current values of the searched keys
    envs: Sequence[str]
    seeds: int  # number of seeds, unless the trial is ruled out before
    seeds_started: int = 1  # number of seeds so far
    ruled_out: bool = False  # no further seed starts
    rung: int = 0  # the rung to which its runs train
    results: dict[RungJob, Result] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)  # folder of a run -> why it failed
    fresh_seeds: int = 0  # number of fresh seeds
    first_seed: int = 0  # in a population, each trial starts with another seed
    branches: list[Branch] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)  # all changes of the values since the start of its run
    start_values: dict[str, object] = field(init=False)  # values at the start of its run

    def __post_init__(self) -> None:
        self.start_values = self.values

    @property
    def failed(self) -> bool:
        """Whether a run of the search failed. Failures on fresh seeds affect only `fresh_score`."""
        fresh = {job.folder for job in self.fresh_jobs()}
        return any(folder not in fresh for folder in self.failures)

    @property
    def has_final_seeds(self) -> bool:
        """Whether no further seed will start."""
        return self.ruled_out or self.seeds_started == self.seeds

    @property
    def needs_seed_decision(self) -> bool:
        """Whether it must be decided now if the trial gets another seed."""
        return not self.failed and not self.has_final_seeds and self.has_results(self.jobs(self.rung))

    def jobs(self, rung: int) -> list[RungJob]:
        """Returns the jobs of the search at a rung, for the seeds that were started."""
        seeds, branch = self.seeds_and_branch(rung)
        return self.jobs_with(seeds, rung, branch)

    def fresh_jobs(self) -> list[RungJob]:
        """Returns the jobs on fresh seeds. They train to the last rung."""
        return self.jobs_with(range(FRESH, FRESH + self.fresh_seeds), self.rung)

    def jobs_with(self, seeds: Iterable[int], rung: int, branch: int = 0) -> list[RungJob]:
        """Returns a job for each of these seeds and each environment."""
        return [RungJob(self.number, rung, env, seed, branch) for seed in seeds for env in self.envs]

    def seeds_and_branch(self, rung: int) -> tuple[Sequence[int], int]:
        """Returns the seeds and the branch of the search's jobs at a rung."""
        branches = [branch for branch in self.branches if branch.rung < rung]
        first = branches[-1].source.seed if branches else self.first_seed
        return range(first, first + self.seeds_started), len(branches)

    def has_results(self, jobs: Iterable[RungJob]) -> bool:
        """Returns whether all these jobs have a result."""
        return all(job in self.results for job in jobs)

    def score(self, rung: int) -> float | None:
        """Returns the score at a rung, or None if it is not final yet."""
        if self.failed:
            return WORST
        jobs = self.jobs(rung)
        if not self.has_final_seeds or not self.has_results(jobs):
            return None
        return self.score_of(jobs)

    def highest_score(self) -> tuple[int, float] | None:
        """Returns (rung, score) of the highest rung with a score, or None if there is none or the trial has failed."""
        for rung in range(self.rung, -1, -1):
            score = self.score(rung)
            if score is not None and score > WORST:
                return rung, score
        return None

    def fresh_score(self) -> float | None:
        """Returns the score on fresh seeds, WORST if a run on them failed, or None until all have a result."""
        jobs = self.fresh_jobs()
        if any(job.folder in self.failures for job in jobs):
            return WORST
        if not jobs or not self.has_results(jobs):
            return None
        return self.score_of(jobs)

    def score_of(self, jobs: Iterable[RungJob]) -> float:
        """Returns the interquartile mean of the scores of jobs with results."""
        return _iqm([self.results[job].score for job in jobs])

    def tie_break(self, rung: int) -> float:
        """Returns the interquartile mean of the last evaluations at a rung, which ranks trials with equal scores."""
        return _iqm([self.results[job].evaluations[-1] for job in self.jobs(rung)])


class Trials:
    """All trials by number. `apply` changes them by one event; a restarted driver applies the whole journal."""

    def __init__(self, envs: Sequence[str], seeds: int, last_rung: int):
        """envs: environments of each trial. seeds: number of seeds of each trial."""
        self.envs, self.seeds, self.last_rung = envs, seeds, last_rung
        self.trials: list[Trial] = []
        self.winner: int | None = None
        self.time_is_up = False  # of the search; only runs on fresh seeds still start
        self.finals_have_begun = False  # then the search has ended, and the best trials train on fresh seeds
        self.seconds = 0.0  # time that drivers had worked at the last event
        self._best: list[Trial] | None = None  # None until `best` is called after an event

    def __len__(self) -> int:
        return len(self.trials)

    def apply(self, event: Event) -> None:
        """Applies an event. Each case below shows the keys of one kind of event."""
        self.seconds = event.get("at", self.seconds)
        self._best = None
        match event["event"]:
            case "asked":
                for index, (point, values) in enumerate(zip(event["points"], event["values"], strict=True)):
                    trial = Trial(len(self.trials), point, values, self.envs, self.seeds)
                    if "seeds" in event:
                        trial.first_seed = event["seeds"][index]
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
            case "another_seed" | "ruled_out" | "promoted" | "measured_again":
                for number in event["trials"]:
                    self._apply_to(self.trials[number], event)

    def _exploit(self, exploits: Sequence[Event]) -> None:
        """Replaces runs by copies of others with new values. Then all trials train to the next rung."""
        for exploit in exploits:
            trial = self.trials[exploit["trial"]]
            source = self.trials[exploit["source"]]
            (job,) = source.jobs(source.rung)
            trial.branches.append(Branch(source.rung, job))
            trial.failures.clear()
            trial.values = exploit["values"]
            trial.start_values = source.start_values
            step = source.results[job].step
            used = [change for change in source.changes if change.step < step]  # all, unless no episode has ended since
            trial.changes = [*used, Change(step, exploit["values"])]
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
                trial.rung = self.last_rung
                trial.fresh_seeds = event["seeds"]
                self.finals_have_begun = True

    def open_jobs(self) -> list[RungJob]:
        """Returns the jobs that are still to be run, those at the highest rung first, then by trial and seed."""
        jobs = []
        for trial in self.trials:
            if trial.fresh_seeds:
                jobs += trial.fresh_jobs()
            elif not trial.failed and not self.time_is_up:
                jobs += trial.jobs(trial.rung)
        return sorted(filter(self._is_open, jobs), key=lambda job: (-job.rung, job.trial, job.seed, job.env))

    def _is_open(self, job: RungJob) -> bool:
        trial = self.trials[job.trial]
        return job not in trial.results and job.folder not in trial.failures

    def best(self) -> list[Trial]:
        """Returns the trials with a score, best first: by their highest rung with a score, then by score."""
        if self._best is not None:
            return self._best
        found = []
        for trial in self.trials:
            highest = trial.highest_score()
            if highest is not None:
                rung, score = highest
                found.append((-rung, -score, -trial.tie_break(rung), trial.number))
        self._best = [self.trials[number] for *_, number in sorted(found)]
        return self._best


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
