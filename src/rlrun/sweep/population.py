"""Population-based training (Jaderberg et al. 2017, arXiv 1711.09846): all trials train at the same time, and from
time to time the worst go on from the runs of the best, with changed hyperparameters."""

from collections.abc import Mapping

import numpy as np

from rlrun.sweep.finals import finals
from rlrun.sweep.journal import Event
from rlrun.sweep.search import Search
from rlrun.sweep.settings import PbtConfig, SweepConfig
from rlrun.sweep.space import Space
from rlrun.sweep.trials import WORST, RungJob, Trial, Trials


class Population:
    """Decides whenever all trials have reached a rung."""

    def __init__(self, cfg: SweepConfig, space: Space, fixed: Mapping[str, object], search: Search, trials: Trials):
        """cfg: with kind=pbt. fixed: the composed config without searched keys."""
        assert isinstance(cfg.kind, PbtConfig)
        self.cfg, self.pbt, self.space, self.fixed = cfg, cfg.kind, space, fixed
        self.search, self.trials = search, trials

    def decision(self) -> Event | None:
        """Returns the next decision, or None if it depends on results that are not known yet."""
        trials = self.trials
        if trials.winner is not None or trials.open_jobs():
            return None
        if trials.time_is_up or trials.finals_have_begun:
            return finals(trials, self.cfg)
        if not len(trials):
            return self.asked()
        if trials.trials[0].rung == trials.last_rung:
            return finals(trials, self.cfg)
        return self.exploited()

    def asked(self) -> Event:
        """Returns the event that starts all trials, each with a seed of its own."""
        numbers = range(self.search.trials)
        points = [[*self.search.ask(number, self.trials)] for number in numbers]
        values = [self.space.values(point, self.fixed) for point in points]
        return {"event": "asked", "points": points, "values": values, "seeds": [*numbers]}

    def exploited(self) -> Event | None:
        """Returns the event that lets all trials train to the next rung, the worst from copies of the best. None if all
        have failed."""
        rung = self.trials.trials[0].rung
        scores = {}
        for trial in self.trials.trials:
            score = trial.score(rung)
            assert score is not None
            scores[trial.number] = score
        ranked = sorted(scores, key=lambda number: (-scores[number], number))
        count = max(1, int(self.pbt.exploit * len(ranked)))
        best = [number for number in ranked[:count] if scores[number] > WORST]
        if not best:
            return None
        behind = [number for number in ranked[count:] if number in ranked[-count:] or scores[number] == WORST]
        exploits = []
        for number in behind:
            rng = np.random.default_rng([self.cfg.seed, rung, number])
            source = self.trials.trials[int(rng.choice(best))]
            exploits.append({"trial": number, "source": source.number, "values": self.explored(source, rng)})
        return {"event": "exploited", "exploits": exploits}

    def explored(self, source: Trial, rng: np.random.Generator) -> dict[str, object]:
        """Returns changed values: each is drawn again with probability `resample`, or else multiplied by one of the
        factors `perturb`."""
        values = {}
        for dimension in self.space.dimensions:
            if dimension.key not in source.values:  # its condition is false
                continue
            draw = rng.random()
            factor = rng.choice(self.pbt.perturb)
            if draw < self.pbt.resample:
                values[dimension.key] = dimension.range.value(rng.random())
            else:
                values[dimension.key] = dimension.range.multiplied(source.values[dimension.key], float(factor))
        return values

    def dispensable(self) -> list[RungJob]:
        """Returns the last jobs of the runs that exploits have replaced."""
        found = []
        for trial in self.trials.trials:
            for branch in trial.branches:
                found += trial.jobs(branch.rung)
        return found
