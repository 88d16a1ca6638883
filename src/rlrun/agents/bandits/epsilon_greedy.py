"""Epsilon-greedy: pulls a random arm with probability epsilon, else the arm with the highest mean reward."""

import torch
from torch import Tensor

from rlrun.agents.bandits.multi_armed import MultiArmed
from rlrun.settings import Fraction, config, register


@register("algo", "epsilon_greedy")
class EpsilonGreedy(MultiArmed):
    """A multi-armed bandit agent that explores with probability epsilon."""

    @config
    class Config:
        epsilon: Fraction

    cfg: Config

    def score(self, context: Tensor) -> Tensor:
        value = self.value(context)
        random = self.noise.uniform(len(context), 1) < self.cfg.epsilon
        return torch.where(random, self.noise.uniform(*value.shape), value)
