"""Diversity is all you need (Eysenbach et al. 2018, arXiv 1802.06070): skills are told apart by where they lead.

The bonus is log q(z | s') - log p(z): how much better than by chance a discriminator tells the goal z from the state
that a step led to. Goals are uniform, so it lies below log n and is 0 where nothing is told; it is not scaled.
"""

import math

from gymnasium import spaces
from torch import Tensor

from rlrun import registry
from rlrun.addons.exploration.intrinsic import Intrinsic
from rlrun.core.agent import kernel
from rlrun.core.state import Optim
from rlrun.errors import ConfigError
from rlrun.functional.distributions import Categorical
from rlrun.functional.losses import average
from rlrun.networks.heads import Head
from rlrun.registry import register
from rlrun.types import GOAL, Batch, Metrics


@register("intrinsic", "diayn")
class DIAYN(Intrinsic):
    Config = Intrinsic.Config

    def __init__(self, cfg, spec, parts):
        super().__init__(cfg, spec, parts)
        goals = spec.obs.spaces.get(GOAL) if isinstance(spec.obs, spaces.Dict) else None
        if not isinstance(goals, spaces.Discrete):
            raise ConfigError("algo.intrinsic=diayn: needs algo.goals=categorical, for goals are the skills")
        self.chance = -math.log(goals.n)
        state = spaces.Dict({name: part for name, part in spec.obs.items() if name != GOAL})
        self.discriminator = Head(registry.build("network", self.network, [state], None), int(goals.n))
        self.optim = Optim(self.discriminator.parameters(), cfg.learning_rate)

    def scaled(self, surprise: Tensor) -> Tensor:
        return surprise if self.cfg.clip is None else surprise.clamp(max=self.cfg.clip)

    def surprise(self, rows: Batch) -> Tensor:
        return self.told(rows).log_prob(rows["next_obs"][GOAL]) - self.chance

    def told(self, rows: Batch) -> Categorical:
        """The distribution over skills."""
        state = {name: part for name, part in rows["next_obs"].items() if name != GOAL}
        return Categorical(self.discriminator(state))

    @kernel
    def fit(self, rows: Batch) -> Metrics:
        skill, weight, told = rows["next_obs"][GOAL], rows["weight"], self.told(rows)
        loss = average(-told.log_prob(skill), weight)
        self.optim.step(loss)
        right = (told.mode() == skill).to(weight)
        return {"diayn": loss.detach(), "diayn_accuracy": average(right, weight)}
