"""kind=search: proposes trials, lets the best train on, and trains the best of all again on fresh seeds."""

from collections.abc import Mapping

from rlrun.sweep.finals import finals
from rlrun.sweep.journal import Event
from rlrun.sweep.pruning import Pruning
from rlrun.sweep.racing import race
from rlrun.sweep.search import Search
from rlrun.sweep.settings import GenerationConfig, SweepConfig
from rlrun.sweep.space import Space
from rlrun.sweep.trials import RungJob, Trials


class Study:
    """Decides from the trials so far. A decision depends on nothing else, so a restarted driver decides alike."""

    def __init__(
        self,
        cfg: SweepConfig,
        space: Space,
        fixed: Mapping[str, object],
        search: Search,
        pruning: Pruning,
        trials: Trials,
    ):
        """fixed: the composed config without searched keys."""
        self.cfg, self.space, self.fixed = cfg, space, fixed
        self.search, self.pruning, self.trials = search, pruning, trials
        self.generation: int | None = None  # number of trials that start together, None without generations
        if isinstance(cfg.order, GenerationConfig):
            self.generation = cfg.order.size

    def decision(self) -> Event | None:
        """Returns the next decision, or None if it depends on results that are not known yet."""
        if self.trials.winner is not None:
            return None
        waiting = self.trials.open_jobs()
        if waiting and (self.generation or len(waiting) >= self.cfg.workers):
            return None
        if self.trials.finals_have_begun:
            return None if waiting else finals(self.trials, self.cfg)
        if self.trials.time_is_up:
            return finals(self.trials, self.cfg)
        another, ruled_out = race(self.trials)
        most = 1  # number of trials of one decision; in a generation, all are decided together
        if self.generation:
            most = len(self.trials)
        chosen = {"ruled_out": ruled_out, "another_seed": another, "promoted": self.pruning.promoted(self.trials)}
        for name, trials in chosen.items():
            if trials:
                return {"event": name, "trials": [trial.number for trial in trials[:most]]}
        left = self.search.trials - len(self.trials)
        if left > 0:
            return self.asked(left)
        return None if waiting else finals(self.trials, self.cfg)

    def asked(self, left: int) -> Event:
        """Returns the event that starts new trials. left: how many are still to come."""
        count = 1
        if self.generation:
            count = min(left, self.generation)
        numbers = range(len(self.trials), len(self.trials) + count)
        points = [[*self.search.ask(number, self.trials)] for number in numbers]
        return {
            "event": "asked",
            "points": points,
            "values": [self.space.values(point, self.fixed) for point in points],
        }

    def dispensable(self) -> list[RungJob]:
        """Returns the jobs of trials that do not train now and are not among the best, the worst first."""
        ranked = self.trials.best()
        candidates = [trial for trial in self.trials.trials if trial not in ranked]
        candidates += reversed(ranked[self.cfg.winners :])
        kept = {self.trials.winner, *(job.trial for job in self.trials.open_jobs())}
        found = []
        for trial in candidates:
            if trial.number not in kept:
                found += trial.jobs(trial.rung) + trial.fresh_jobs()
        return found
