"""The trials of a sweep: what was decided and found out so far, as a function of the events in the journal."""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlrun.errors import ConfigError
from rlrun.report.statistics import iqm
from rlrun.sweep.journal import Event

WORST = -math.inf  # score of a trial of which a run failed
FRESH = 1000  # first seed of the runs that measure the best trials again


@dataclass(frozen=True, order=True)
class Job:
    """One run that trains to a rung."""

    trial: int
    rung: int
    seed: int

    @property
    def folder(self) -> str:
        """The folder of the run below `trials/`. Jobs of all rungs continue the same run."""
        return f"{self.trial:04}-s{self.seed}"


@dataclass
class Trial:
    """One setting of the searched keys."""

    number: int
    values: dict[str, Any]
    seeds: int  # number of runs, unless it is ruled out before
    runs: int = 1  # started so far, with seeds 0, 1, ...
    ruled_out: bool = False  # no further seed starts
    rung: int = 0  # up to which it trains
    scores: dict[tuple[int, int], float] = field(default_factory=dict)  # (rung, seed) -> score
    curves: dict[tuple[int, int], list[float]] = field(default_factory=dict)  # (rung, seed) -> evaluations up to it
    failures: dict[int, str] = field(default_factory=dict)  # seed -> why the run failed
    fresh_seeds: int = 0  # number of runs that measure it again

    @property
    def failed(self) -> bool:
        return bool(self.failures)

    @property
    def is_complete(self) -> bool:
        """Whether no further seed will start."""
        return self.ruled_out or self.runs == self.seeds

    def has_ended(self, rung: int) -> bool:
        """Returns whether all runs that were started have reached a rung."""
        return all((rung, seed) in self.scores for seed in range(self.runs))

    def score(self, rung: int) -> float | None:
        """Returns the score at a rung, or None if it is not final yet."""
        if self.failed:
            return WORST
        if not self.is_complete or not self.has_ended(rung):
            return None
        return self.score_of(rung, range(self.runs))

    def fresh_score(self, last: int) -> float | None:
        """Returns the score of the runs that measured it again, or None if not all have ended. last: the last rung."""
        seeds = range(FRESH, FRESH + self.fresh_seeds)
        if any(seed in self.failures for seed in seeds):
            return WORST
        if not seeds or not all((last, seed) in self.scores for seed in seeds):
            return None
        return self.score_of(last, seeds)

    def score_of(self, rung: int, seeds: Iterable[int]) -> float:
        """Returns the interquartile mean of the scores of runs that have reached a rung."""
        return float(iqm([self.scores[rung, seed] for seed in seeds]))


class Trials:
    """All trials by number. `apply` changes them by one event; a restarted driver applies the whole journal."""

    def __init__(self, seeds: int, last: int):
        """seeds: runs of each trial. last: the last rung."""
        self.seeds, self.last = seeds, last
        self.trials: list[Trial] = []
        self.winner: int | None = None

    def __len__(self) -> int:
        return len(self.trials)

    def apply(self, event: Event) -> None:
        """Applies an event. The keys of each kind stand here and nowhere else."""
        match event["event"]:
            case "asked":
                for values in event["values"]:
                    self.trials.append(Trial(len(self.trials), values, self.seeds))
            case "another_seed":
                for number in event["trials"]:
                    self.trials[number].runs += 1
            case "ruled_out":
                for number in event["trials"]:
                    self.trials[number].ruled_out = True
            case "promoted":
                for number in event["trials"]:
                    self.trials[number].rung += 1
            case "measured_again":
                for number in event["trials"]:
                    self.trials[number].rung = self.last
                    self.trials[number].fresh_seeds = event["seeds"]
            case "scored":
                self.trials[event["trial"]].scores[event["rung"], event["seed"]] = event["score"]
                self.trials[event["trial"]].curves[event["rung"], event["seed"]] = event["evaluations"]
            case "failed":
                self.trials[event["trial"]].failures[event["seed"]] = event["why"]
            case "won":
                self.winner = event["trial"]

    def open_jobs(self) -> list[Job]:
        """Returns the jobs without a result: those that are furthest first, then by trial and seed."""
        jobs = []
        for trial in self.trials:
            if trial.fresh_seeds:
                jobs += [Job(trial.number, self.last, FRESH + i) for i in range(trial.fresh_seeds)]
            elif not trial.failed:
                jobs += [Job(trial.number, trial.rung, seed) for seed in range(trial.runs)]
        return sorted(filter(self._is_open, jobs), key=lambda job: (-job.rung, job.trial, job.seed))

    def _is_open(self, job: Job) -> bool:
        trial = self.trials[job.trial]
        return (job.rung, job.seed) not in trial.scores and job.seed not in trial.failures

    def best(self) -> list[Trial]:
        """Returns the trials with a score, best first: by the furthest rung with a score, then by score."""
        found = []
        for trial in self.trials:
            for rung in range(trial.rung, -1, -1):
                score = trial.score(rung)
                if score is not None and score > WORST:
                    found.append((-rung, -score, trial.number))
                    break
        return [self.trials[number] for _, _, number in sorted(found)]


def apply_all(trials: Trials, events: Sequence[Event], keys: Collection[str]) -> Trials:
    """Applies the events of a journal in order and returns the trials.

    Raises ConfigError for an event that does not fit, or that sets other keys than the searched ones.
    """
    for line, event in enumerate(events, start=1):
        try:
            trials.apply(event)
        except (KeyError, IndexError, TypeError, AttributeError):
            raise ConfigError(f"journal.jsonl: line {line} does not fit the lines before it") from None
    for trial in trials.trials:
        if foreign := trial.values.keys() - keys:
            raise ConfigError(f"journal.jsonl: trial {trial.number} sets {min(foreign)}, which is not searched")
    return trials
