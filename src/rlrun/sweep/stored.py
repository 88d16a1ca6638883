"""A sweep as it stands on disk."""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from rlrun import lock
from rlrun.config.stored import SWEEP
from rlrun.errors import ConfigError
from rlrun.formats.numbers import LAST_STEP, is_whole
from rlrun.sweep import folder, journal
from rlrun.sweep.events import apply_all
from rlrun.sweep.finals import winner, without_winner
from rlrun.sweep.folder import Description
from rlrun.sweep.settings import SweepConfig, check_size, settings
from rlrun.sweep.space import Space, from_yaml
from rlrun.sweep.trials import Trials


@dataclass(frozen=True)
class Stored:
    """The folder of a sweep and its content."""

    path: Path
    described: Description
    cfg: SweepConfig
    space: Space
    trials: Trials

    @property
    def rung_steps(self) -> dict[str, list[int]]:
        """The step of each rung, by environment."""
        return {env: run["steps"] for env, run in self.described.runs.items()}

    @property
    def planned(self) -> int:
        """The number of trials of the whole sweep. A grid may have fewer points than `trials` allows."""
        if self.cfg.search != "grid":
            return self.cfg.trials
        from rlrun.sweep.search import Grid  # late, because it imports numpy

        return Grid(self.space, self.cfg.seed, self.cfg.trials).trials

    @property
    def state(self) -> str:
        """The state as text: running, interrupted, done, or "ended: " and why there is no winner."""
        trials = self.trials
        if trials.winner is not None:
            return "done"
        if lock.holder(self.path):
            return "running"
        if trials.open_jobs():
            return "interrupted"
        if trials.finals_have_begun:
            has_ended = winner(trials) is None
        else:
            has_ended = not trials.best() and (trials.time_is_up or len(trials) >= self.planned)
        if has_ended:
            return f"ended: {without_winner(trials)}"
        return "interrupted"


def read(path: Path) -> Stored:
    """Reads the folder of a sweep. Raises ConfigError if it holds none, or if a file of it is not valid."""
    described = folder.read(path)
    cfg = settings(described.sweep)
    check_size(cfg, len(described.runs))
    space = from_yaml(described.space, str(path / SWEEP))
    trials = Trials(described.envs, cfg.seeds, described.last_rung)
    _check_runs(path, described)
    apply_all(trials, journal.read(path / journal.NAME), cfg, space, file=path / journal.NAME)
    return Stored(path, described, cfg, space, trials)


def _check_runs(path: Path, described: Description) -> None:
    """Raises ConfigError if a word is not a text, if steps do not rise, or if environments have different numbers of
    rungs."""
    for run in described.runs.values():
        steps = run["steps"]
        has_texts = all(isinstance(word, str) for word in run["words"])
        has_all_rungs = 0 < len(steps) == described.last_rung + 1
        is_rising = all(is_whole(b, 1, LAST_STEP) and a < b for a, b in pairwise([0, *steps]))
        if not (has_texts and has_all_rungs and is_rising):
            raise ConfigError(f"{path / SWEEP}: runs must have words, and steps that rise")
