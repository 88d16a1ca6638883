"""A sweep as it stands on disk."""

import math
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from rlrun.config.stored import SWEEP
from rlrun.errors import ConfigError
from rlrun.sweep import folder, journal
from rlrun.sweep.folder import Description
from rlrun.sweep.settings import SweepConfig, settings
from rlrun.sweep.space import Space, from_yaml
from rlrun.sweep.trials import Trial, Trials, apply_all


@dataclass(frozen=True)
class Stored:
    """The folder of a sweep and its content."""

    path: Path
    described: Description
    cfg: SweepConfig
    space: Space
    trials: Trials

    @property
    def courses(self) -> dict[str, list[int]]:
        """The steps of the rungs, by environment."""
        return {env: run["steps"] for env, run in self.described.runs.items()}


def read(path: Path) -> Stored:
    """Reads the folder of a sweep. Raises ConfigError if it holds none, or a file of it was changed."""
    described = folder.read(path)
    cfg = settings(described.sweep)
    space = from_yaml(described.space, str(path / SWEEP))
    trials = Trials(described.envs, cfg.seeds, described.last)
    _check_courses(path, described)
    apply_all(trials, journal.read(path / journal.NAME), space.keys, file=path / journal.NAME)
    for trial in trials.trials:
        try:
            _check(trial, space)
        except (ValueError, TypeError, ArithmeticError):
            raise ConfigError(f"{path / journal.NAME}: trial {trial.number} has values that no sweep writes") from None
    return Stored(path, described, cfg, space, trials)


def _check_courses(path: Path, described: Description) -> None:
    """Raises ConfigError for words that are no text, and for steps that are not rising."""
    for run in described.runs.values():
        words, steps = run["words"], run["steps"]
        rising = all(type(step) is int for step in steps) and all(a < b for a, b in pairwise([0, *steps]))
        if not all(isinstance(word, str) for word in words) or not steps or not rising:
            raise ConfigError(f"{path / SWEEP}: runs must have words, and steps that rise")


def _check(trial: Trial, space: Space) -> None:
    """Raises ValueError or TypeError if a trial has values outside of the space."""
    for dimension in space.dimensions:
        if dimension.key in trial.values and not math.isfinite(dimension.range.position(trial.values[dimension.key])):
            raise ValueError
