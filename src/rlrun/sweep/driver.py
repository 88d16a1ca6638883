"""The driver of a sweep: decides, starts runs, and collects their results, until the best trial is known.

A decision is a function of the journal, and is in the journal before it has an effect. A driver that is killed loses
nothing: the next one applies the journal, waits for the runs that still train, and starts the others again.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from rlrun.cluster import Cluster, Command, Ended
from rlrun.sweep.journal import Event, Journal
from rlrun.sweep.pruning import Pruning
from rlrun.sweep.racing import undecided
from rlrun.sweep.runs import Runs
from rlrun.sweep.search import Search
from rlrun.sweep.settings import SweepConfig
from rlrun.sweep.space import Space
from rlrun.sweep.trials import Job, Trials

POLL_S = 0.05
ATTEMPTS = 5  # to finish a job whose process was killed, per driver
KILLED = (130, 137, 143)  # exit codes of runs that a signal stopped; a negative code is a signal too


class Driver:
    """Runs a sweep to its end."""

    def __init__(
        self,
        cfg: SweepConfig,
        space: Space,
        fixed: Mapping[str, Any],
        search: Search,
        pruning: Pruning,
        trials: Trials,
        journal: Journal,
        runs: Runs,
        cluster: Cluster,
        say: Callable[[Event, Trials], None],
    ):
        """fixed: the composed config without searched keys. say: called after every event."""
        self.cfg, self.space, self.fixed = cfg, space, fixed
        self.search, self.pruning, self.trials = search, pruning, trials
        self.journal, self.runs, self.cluster, self.say = journal, runs, cluster, say
        self.running: dict[str, Job] = {}  # started by this driver, by folder
        self.awaited: list[Job] = []  # started by an earlier driver
        self.attempts: Counter[Job] = Counter()

    def run(self) -> None:
        """Runs until the sweep has ended. Raises RunError if the journal cannot be written."""
        jobs = self.trials.open_jobs()
        adopted = self.cluster.adopt([self.command(job) for job in jobs])
        for job in jobs:
            if job.folder in adopted:
                self.running[job.folder] = job
            elif self.runs.is_running(job):
                self.awaited.append(job)
        while self.trials.winner is None:
            self.collect()
            while event := self.decision():
                self.record(event)
            self.start()
            if not self.running and not self.awaited and not self.trials.open_jobs():
                return  # no trial has a score
            time.sleep(POLL_S)

    def record(self, event: Event) -> None:
        """Writes an event to the journal and applies it."""
        self.journal.append(event)
        self.trials.apply(event)
        self.say(event, self.trials)

    # --- decisions

    def decision(self) -> Event | None:
        """Returns the next decision, or None if it depends on results that are not known yet."""
        waiting = self.trials.open_jobs()
        at_once = 1 if self.cfg.order == "free" else len(self.trials)  # trials that one decision is about
        if self.trials.winner is not None:
            return None
        if waiting and (self.cfg.order == "generation" or len(waiting) >= self.cfg.workers):
            return None
        if any(trial.fresh_seeds for trial in self.trials.trials):
            return None if waiting else self.won()
        another, ruled_out = undecided(self.trials)
        chosen = {"ruled_out": ruled_out, "another_seed": another, "promoted": self.pruning.promoted(self.trials)}
        for name, trials in chosen.items():
            if trials:
                return {"event": name, "trials": [trial.number for trial in trials[:at_once]]}
        left = self.search.trials - len(self.trials)
        if left > 0:
            return self.asked(min(left, self.cfg.generation if self.cfg.order == "generation" else 1))
        return None if waiting else self.finalists()

    def asked(self, count: int) -> Event:
        """Returns the event that starts new trials."""
        numbers = range(len(self.trials), len(self.trials) + count)
        return {
            "event": "asked",
            "values": [self.space.values(self.search.ask(number), self.fixed) for number in numbers],
        }

    def finalists(self) -> Event | None:
        """Returns the event that measures the best trials again, or names the winner if none is measured again."""
        best = self.trials.best()
        if not best:
            return None
        if not self.cfg.winners:
            return {"event": "won", "trial": best[0].number}
        numbers = [trial.number for trial in best[: self.cfg.winners]]
        return {"event": "measured_again", "trials": numbers, "seeds": self.cfg.fresh_seeds}

    def won(self) -> Event:
        """Returns the event that names the winner: the best score on fresh seeds."""
        scores = []
        for trial in self.trials.trials:
            score = trial.fresh_score(self.trials.last)
            if score is not None:
                scores.append((score, -trial.number))  # of equal ones, the first trial
        return {"event": "won", "trial": -max(scores)[1]}

    # --- runs

    def start(self) -> None:
        """Starts open jobs while there are free workers."""
        busy = {*self.running.values(), *self.awaited}
        for job in self.trials.open_jobs():
            if len(self.running) + len(self.awaited) >= self.cfg.workers:
                return
            if job in busy:
                continue
            self.running[job.folder] = job
            self.cluster.submit([self.command(job)])

    def command(self, job: Job) -> Command:
        """Returns the command that trains a job."""
        words = self.runs.command(job, self.trials.trials[job.trial].values)
        return Command(job.folder, words, self.runs.log(job))

    def collect(self) -> None:
        """Records the results of the runs that have ended."""
        for ended in self.cluster.ended():
            self.settle(self.running.pop(ended.name), ended)
        for job in [job for job in self.awaited if not self.runs.is_running(job)]:
            self.awaited.remove(job)
            self.settle(job, Ended(job.folder, None))

    def settle(self, job: Job, ended: Ended) -> None:
        """Records the result of a job, or leaves the job open if its process was killed."""
        which = {"trial": job.trial, "rung": job.rung, "seed": job.seed}
        outcome = self.runs.outcome(job)
        if outcome is not None and outcome.evaluations:
            found = {"step": outcome.step, "score": outcome.evaluations[-1], "evaluations": outcome.evaluations}
            self.record({"event": "scored", **which, **found})
            return
        if self.runs.is_running(job):  # started by an earlier driver that was killed at once
            self.awaited.append(job)
            return
        code = ended.exit_code
        if outcome is None and (code is None or code < 0 or code in KILLED):
            self.attempts[job] += 1
            if self.attempts[job] < ATTEMPTS:
                return
            why = f"its process was killed {ATTEMPTS} times, the last time with exit code {code}"
        else:
            why = outcome.why if outcome is not None else self.runs.last_error(job)
        self.record({"event": "failed", **which, "why": why})

    def close(self) -> None:
        """Interrupts the runs of this driver that are processes of this machine. They go on with the next driver."""
        self.cluster.close()
        self.journal.close()
