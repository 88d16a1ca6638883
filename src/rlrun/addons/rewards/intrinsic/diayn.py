"""Diversity is all you need (Eysenbach et al. 2018, arXiv 1802.06070): skills that visit different states.

The reward is log q(z | s') - log p(z), where the discriminator q predicts the skill z from the next state s'. The
skills are the goals of `algo.goals`. The prior p of n discrete skills is uniform, so the reward is at most log n, and 0
if the prediction is uniform. Of continuous skills, q is a normal distribution with standard deviation 1 around the
prediction, which learns by half the squared error, and p the distribution of the goals. Unlike other intrinsic rewards,
this one is not normalised: `algo.intrinsic.statistics=none`.
"""

import math
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from rlrun.addons.goals.goals import with_goal
from rlrun.addons.rewards.intrinsic.model import Intrinsic
from rlrun.core.agent import kernel
from rlrun.core.state import Optim
from rlrun.errors import ConfigError
from rlrun.functional.distributions import Categorical, Normal
from rlrun.functional.losses import masked_mean
from rlrun.networks.heads import Head
from rlrun.settings import register
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
        self.skills: Discrete | Box
        if isinstance(goals, Discrete):
            self.skills = goals
            outputs = int(goals.n)
        elif isinstance(goals, Box) and len(goals.shape) == 1:
            self.skills = goals
            outputs = goals.shape[0]
        else:
            raise ConfigError(
                "algo.intrinsic=diayn: requires algo.goals=categorical, gaussian or box, because goals are the skills"
            )
        torso = self.network_of(spaces.Dict(without_goal(self.space)))
        self.discriminator = Head(torso, outputs)
        self.optim = Optim(self.discriminator.parameters(), cfg.learning_rate)

    def preprocess(self, rows: Batch) -> Batch:
        """Keeps the skill as it is: it may be a vector, which statistics of observations would change."""
        preprocessed = super().preprocess(rows)
        return preprocessed | {"next_obs": with_goal(preprocessed["next_obs"], goal_of(rows["next_obs"]))}

    def raw_reward(self, rows: Batch) -> Tensor:
        skill = goal_of(rows["next_obs"])
        return self.predict_skill(rows).log_prob(skill) - self.log_prior(skill)

    def log_prior(self, skill: Tensor) -> Tensor | float:
        """Returns log p(z) of skills, [batch] or a number."""
        if isinstance(self.skills, Discrete):
            return -math.log(self.skills.n)
        if self.skills.is_bounded():
            return -float(np.log(self.skills.high - self.skills.low).sum())
        return Normal(torch.zeros_like(skill), torch.zeros_like(skill)).log_prob(skill)

    def predict_skill(self, rows: Batch) -> Categorical | Normal:
        """Returns the discriminator's distribution over skills."""
        state = without_goal(rows["next_obs"])
        outputs = self.discriminator(state)
        if isinstance(self.skills, Discrete):
            return Categorical(outputs)
        return Normal(outputs, torch.zeros_like(outputs))

    @kernel
    def fit(self, rows: Batch) -> Metrics:
        skill = goal_of(rows["next_obs"])
        weight = rows["weight"]
        predicted = self.predict_skill(rows)
        if isinstance(self.skills, Discrete):
            loss = masked_mean(-predicted.log_prob(skill), weight)
            is_correct = (predicted.mode() == skill).to(weight)
            metrics = {"loss/diayn_accuracy": masked_mean(is_correct, weight)}
        else:
            loss = masked_mean(0.5 * (predicted.mode() - skill).square().sum(-1), weight)
            metrics = {}
        self.optim.step(loss)
        return metrics | {"loss/diayn": loss.detach()}


def goal_of(obs: Any) -> Tensor:
    """Returns the goal in an observation."""
    return obs[GOAL]


def without_goal(obs: Any) -> dict[str, Any]:
    """Returns the entries of an observation, or of its space, except the goal."""
    return {name: entry for name, entry in obs.items() if name != GOAL}
