"""Diversity is all you need (Eysenbach et al. 2018, arXiv 1802.06070): skills differ in the states that they reach.

The reward is log q(z | s') - log p(z): by how much the discriminator predicts the goal z from the state after a step
better than chance. Goals are uniform, so it is below log n, and 0 where the state says nothing about the goal. It is
not scaled.
"""

import math
from collections.abc import Mapping
from typing import Any

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
    """Rewards states from which a discriminator predicts the skill."""

    Config = Intrinsic.Config

    def __init__(self, cfg, spec, parts):
        super().__init__(cfg, spec, parts)
        goals = None
        if isinstance(spec.obs, spaces.Dict):
            goals = spec.obs.spaces.get(GOAL)
        if not isinstance(goals, spaces.Discrete):
            raise ConfigError("algo.intrinsic=diayn: needs algo.goals=categorical, for goals are the skills")
        num_skills = int(goals.n)
        self.log_prior = -math.log(num_skills)
        state = spaces.Dict(without_goal(spec.obs))
        torso = registry.build("network", self.network, [state], None)
        self.discriminator = Head(torso, num_skills)
        self.optim = Optim(self.discriminator.parameters(), cfg.learning_rate)

    def scale(self, reward: Tensor) -> Tensor:
        return self.clip(reward)

    def raw_reward(self, rows: Batch) -> Tensor:
        skill = rows["next_obs"][GOAL]
        log_prob = self.predict_skill(rows).log_prob(skill)
        return log_prob - self.log_prior

    def predict_skill(self, rows: Batch) -> Categorical:
        """Returns the discriminator's distribution over skills."""
        state = without_goal(rows["next_obs"])
        return Categorical(self.discriminator(state))

    @kernel
    def fit(self, rows: Batch) -> Metrics:
        skill = rows["next_obs"][GOAL]
        weight = rows["weight"]
        predicted = self.predict_skill(rows)
        loss = average(-predicted.log_prob(skill), weight)
        self.optim.step(loss)
        is_correct = (predicted.mode() == skill).to(weight)
        return {"diayn": loss.detach(), "diayn_accuracy": average(is_correct, weight)}


def without_goal(obs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the entries of an observation, or of its space, except the goal."""
    return {name: part for name, part in obs.items() if name != GOAL}
