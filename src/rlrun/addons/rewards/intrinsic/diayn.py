"""Diversity is all you need (Eysenbach et al. 2018, arXiv 1802.06070): skills that visit different states.

The reward is log q(z | s') - log p(z), where the discriminator q predicts the skill z from the next state s'. The
skills are the goals of `algo.goals`. The prior p is uniform over n skills, so the reward is at most log n, and 0 if the
prediction is uniform. Unlike other intrinsic rewards, it is not normalised: `algo.intrinsic.statistics=none`.
"""

import math
from typing import Any

from gymnasium import spaces
from torch import Tensor

from rlrun.addons.rewards.intrinsic.model import Intrinsic
from rlrun.core.agent import kernel
from rlrun.core.state import Optim
from rlrun.errors import ConfigError
from rlrun.functional.distributions import Categorical
from rlrun.functional.losses import masked_mean
from rlrun.networks.heads import Head
from rlrun.settings import register, registry
from rlrun.types import GOAL, Batch, Metrics


@register("intrinsic", "diayn")
class DIAYN(Intrinsic):
    """Rewards states from which a discriminator can predict the skill."""

    Config = Intrinsic.Config

    def __init__(self, cfg, spec, parts):
        super().__init__(cfg, spec, parts)
        goals = None
        if isinstance(spec.obs, spaces.Dict):
            goals = spec.obs.spaces.get(GOAL)
        if not isinstance(goals, spaces.Discrete):
            raise ConfigError("algo.intrinsic=diayn: requires algo.goals=categorical, because the goals are the skills")
        num_skills = int(goals.n)
        self.log_prior = -math.log(num_skills)
        state = spaces.Dict(without_goal(self.space))
        torso = registry.build("network", self.network, [state], None)
        self.discriminator = Head(torso, num_skills)
        self.optim = Optim(self.discriminator.parameters(), cfg.learning_rate)

    def raw_reward(self, rows: Batch) -> Tensor:
        skill = goal_of(rows["next_obs"])
        log_prob = self.predict_skill(rows).log_prob(skill)
        return log_prob - self.log_prior

    def predict_skill(self, rows: Batch) -> Categorical:
        """Returns the discriminator's distribution over skills."""
        state = without_goal(rows["next_obs"])
        return Categorical(self.discriminator(state))

    @kernel
    def fit(self, rows: Batch) -> Metrics:
        skill = goal_of(rows["next_obs"])
        weight = rows["weight"]
        predicted = self.predict_skill(rows)
        loss = masked_mean(-predicted.log_prob(skill), weight)
        self.optim.step(loss)
        is_correct = (predicted.mode() == skill).to(weight)
        return {"loss/diayn": loss.detach(), "loss/diayn_accuracy": masked_mean(is_correct, weight)}


def goal_of(obs: Any) -> Tensor:
    """Returns the goal in an observation."""
    return obs[GOAL]


def without_goal(obs: Any) -> dict[str, Any]:
    """Returns the entries of an observation, or of its space, except the goal."""
    return {name: entry for name, entry in obs.items() if name != GOAL}
