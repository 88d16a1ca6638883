"""The driver of a sweep: decides, starts runs, and collects their results, until the best trial is known.

A decision is a function of the journal, and is in the journal before it has an effect. A driver that is killed loses
nothing: the next one applies the journal, waits for the runs that still train, and starts the others again.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import asdict
from typing import Protocol

from rlrun.cluster import Cluster, Command, Ended
from rlrun.cluster.task import last_error
from rlrun.errors import ConfigError, RunError
from rlrun.formats.history import CONVERTS
from rlrun.snapshot.atomic import is_shortage
from rlrun.sweep.disk import remove_snapshots
from rlrun.sweep.journal import Event, Journal
from rlrun.sweep.runs import Runs
from rlrun.sweep.settings import SweepConfig
from rlrun.sweep.trials import RungJob, Trials

POLL_S = 0.05
ATTEMPTS = 5  # times that a driver starts a job whose process is killed each time
LONGEST_WHY = 1000  # most characters of the reason for a failure
KILLED = (130, 137, 143)  # exit codes of runs that a signal stopped; a negative code is a signal too
STOP = "STOP"  # file in trials/ with which `rlrun sweep stop` requests the end of the driver


class Strategy(Protocol):
    """Decides which trials there are, and how far each trains."""

    def decision(self) -> Event | None:
        """Returns the next decision, or None if it depends on results that are not known yet."""

    def dispensable(self) -> list[RungJob]:
        """Returns the jobs whose snapshots will probably not be needed, the least needed first."""


def show_nothing(trials: Trials, running: Collection[RungJob]) -> None:
    """A `progress` for drivers without a display."""


class Driver:
    """Runs a sweep to its end."""

    def __init__(
        self,
        strategy: Strategy,
        trials: Trials,
        journal: Journal,
        runs: Runs,
        cluster: Cluster,
        cfg: SweepConfig,
        say: Callable[[Event, Trials], None],
        progress: Callable[[Trials, Collection[RungJob]], None] = show_nothing,
    ):
        """say: called after every event. progress: called often, with the jobs that train now."""
        self.strategy, self.trials, self.journal = strategy, trials, journal
        self.runs, self.cluster, self.cfg, self.say = runs, cluster, cfg, say
        self.progress = progress
        self.started = time.monotonic() - trials.seconds  # as if earlier drivers had worked without a break
        self.running: dict[str, RungJob] = {}  # started by this driver, by folder
        self.awaited: list[RungJob] = []  # started by an earlier driver
        self.attempts: Counter[RungJob] = Counter()

    def run(self) -> None:
        """Runs until the sweep has ended.

        Raises KeyboardInterrupt after `rlrun sweep stop`, RunError if the disk is full, and ConfigError if an earlier
        version began a run in a format that this one does not read.
        """
        (self.runs.folder / STOP).unlink(missing_ok=True)
        jobs = self.trials.open_jobs()
        adopted = self.cluster.adopt([self.command(job) for job in jobs])
        for job in jobs:
            if job.folder in adopted:
                self.running[job.folder] = job
            elif self.runs.is_running(job):
                self.awaited.append(job)
        while self.trials.winner is None:
            if (self.runs.folder / STOP).exists():
                self.cluster.interrupt()
                raise KeyboardInterrupt
            self.collect()
            if self.cfg.hours is not None and not self.trials.time_is_up and self.seconds > self.cfg.hours * 3600:
                self.record({"event": "time_is_up"})
            while event := self.strategy.decision():
                self.record(event)
            self.start()
            if not self.running and not self.awaited and not self.trials.open_jobs():
                return  # there is no winner
            self.progress(self.trials, [*self.running.values(), *self.awaited])
            time.sleep(POLL_S)

    @property
    def seconds(self) -> float:
        """Time that drivers of this sweep have worked."""
        return time.monotonic() - self.started

    def record(self, event: Event) -> None:
        """Writes an event to the journal, applies it and shows it."""
        event = {**event, "at": round(self.seconds, 3)}
        self.journal.append(event)
        self.trials.apply(event)
        self.say(event, self.trials)

    def start(self) -> None:
        """Starts open jobs until all workers are busy."""
        busy = {*self.running.values(), *self.awaited}
        jobs = self.trials.open_jobs()
        for job in jobs:
            self.runs.prepare(job, self.trials.trials[job.trial])
        for job in jobs:
            if len(self.running) + len(self.awaited) >= self.cfg.workers:
                return
            if job in busy:
                continue
            self.runs.check(job, self.trials.trials[job.trial])
            self.running[job.folder] = job
            self.cluster.submit([self.command(job)])

    def command(self, job: RungJob) -> Command:
        """Returns the command that trains a job."""
        words = self.runs.command(job, self.trials.trials[job.trial])
        return Command(job.folder, words, self.runs.log(job))

    def collect(self) -> None:
        """Records the results of the runs that have ended."""
        for ended in self.cluster.ended():
            self.settle(self.running.pop(ended.name), ended)
        for job in [job for job in self.awaited if not self.runs.is_running(job)]:
            self.awaited.remove(job)
            self.settle(job, Ended(job.folder, None))

    def settle(self, job: RungJob, ended: Ended) -> None:
        """Records the result of a job, or leaves the job open if its process was killed."""
        outcome = self.runs.outcome(job)
        if outcome is not None and outcome.result is not None:
            self.record({"event": "scored", **asdict(job), **outcome.result._asdict()})
            if self.cfg.disk is not None:
                remove_snapshots(self.runs, self.strategy.dispensable(), self.cfg.disk)
            return
        if self.runs.is_running(job):  # by a process that an earlier driver had just started when this one began
            self.awaited.append(job)
            return
        code = ended.exit_code
        if code is None or code < 0 or code in KILLED:  # whatever summary.json says
            self.attempts[job] += 1
            if self.attempts[job] < ATTEMPTS:
                return
            why = f"its process was killed {ATTEMPTS} times, the last time with exit code {code}"
        else:
            why = last_error(self.runs.log(job)) if outcome is None else outcome.why
        if is_shortage(why):
            raise RunError(f"{self.runs.path(job)}: {why}")
        if CONVERTS in why:  # an earlier version began the run
            raise ConfigError(why)
        self.record({"event": "failed", **asdict(job), "why": why[:LONGEST_WHY]})

    def close(self) -> None:
        """Interrupts the runs that are processes of this machine; the next driver continues them."""
        self.cluster.close()
        self.journal.close()
