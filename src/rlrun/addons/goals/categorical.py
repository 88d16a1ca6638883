"""Categorical goals: each episode has a random integer as its goal.

DIAYN (arXiv 1802.06070) uses these goals as its skills.
"""

from gymnasium import spaces
from torch import Tensor

from rlrun.addons.goals.goals import EpisodeGoals
from rlrun.core.parts import Parts
from rlrun.settings import Units, config, register
from rlrun.types import Spec


@register("goals", "categorical")
class CategoricalGoals(EpisodeGoals):
    """Draws whole numbers uniformly. In evaluation, the environments together cycle through all goals."""

    @config
    class Config:
        num_goals: Units

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(spec, parts, spaces.Discrete(cfg.num_goals))
        self.num_goals = cfg.num_goals

    def drawn(self, rows: int) -> Tensor:
        return self.draw.integers(self.num_goals, rows)

    def numbered(self, number: Tensor) -> Tensor:
        return number % self.num_goals
