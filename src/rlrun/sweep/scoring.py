"""The score of a run: how good its evaluations are up to a rung, higher is better."""

from collections.abc import Mapping, Sequence

from rlrun.errors import ConfigError
from rlrun.sweep.settings import SpeedConfig, SweepConfig
from rlrun.sweep.trials import Result


def is_score_of(result: Result, cfg: SweepConfig) -> bool:
    """Returns whether the score of a result follows from its evaluations. Returns True for a score of speed, which
    depends on the steps of the evaluations, and these are not in a result."""
    if isinstance(cfg.score, SpeedConfig):
        return True
    scoring = Scoring(cfg, [*cfg.normalize])
    return result.score == scoring.score([], result.evaluations, result.seconds, 1)


class Scoring:
    """Turns evaluations into scores."""

    def __init__(self, cfg: SweepConfig, envs: Sequence[str]):
        """Raises ConfigError if settings that this score needs are missing."""
        self.part, self.cost = cfg.score, cfg.cost
        self.bounds: Mapping[str, Sequence[float]] = cfg.normalize
        faults = []
        for env in self.bounds:
            if env not in envs:
                faults.append(f"normalize.{env}: this sweep has no env={env} (it has: {', '.join(envs)})")
        if len(envs) > 1:
            for env in envs:
                if env not in self.bounds:
                    faults.append(
                        f"normalize: scores of several environments need the returns that count 0 and 1 for each; "
                        f"add normalize={{{env}: [LOW, HIGH]}}"
                    )
        if faults:
            raise ConfigError(*faults)

    def normalized(self, env: str, value: float) -> float:
        """Returns an evaluation on the scale on which the two returns of `normalize` are 0 and 1."""
        if env not in self.bounds:
            return value
        low, high = self.bounds[env]
        return (value - low) / (high - low)

    def score(self, steps: Sequence[int], evaluations: Sequence[float], seconds: float, total_steps: int) -> float:
        """Returns the score of a run.

        steps, evaluations: [N] steps and normalised values of its evaluations so far, N >= 1. seconds: training time so
        far. total_steps: of the whole run.
        """
        return self._quality(steps, evaluations, total_steps) - self.cost * seconds / 60

    def _quality(self, steps: Sequence[int], evaluations: Sequence[float], total_steps: int) -> float:
        if self.part.name == "mean":
            return sum(evaluations) / len(evaluations)
        if isinstance(self.part, SpeedConfig):
            for step, value in zip(steps, evaluations, strict=True):
                if value >= self.part.target:
                    return 1 - step / total_steps
            return 0.0
        return evaluations[-1]
