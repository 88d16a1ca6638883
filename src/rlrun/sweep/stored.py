"""A sweep as it stands on disk."""

from dataclasses import dataclass
from pathlib import Path

from rlrun.sweep import folder, journal
from rlrun.sweep.folder import Description
from rlrun.sweep.settings import SweepConfig, settings
from rlrun.sweep.space import Space, from_yaml
from rlrun.sweep.trials import Trials, apply_all


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
    space = from_yaml(described.space, str(path / folder.SWEEP))
    trials = Trials(described.envs, cfg.seeds, described.last)
    apply_all(trials, journal.read(path / journal.NAME), space.keys)
    return Stored(path, described, cfg, space, trials)
