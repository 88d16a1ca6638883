"""A policy of logistic distributions, whose tails are heavier than those of normal distributions.

pytest my_head/
rlrun train algo=ppo env=Pendulum algo.head=./my_head/my_head.py
"""

import torch
from gymnasium.spaces import Box
from torch import Tensor, nn
from torch.nn.functional import softplus

from rlrun.functional.distributions import Source
from rlrun.networks.heads import PolicyHead
from rlrun.settings import PositiveFloat, config, register
from rlrun.types import Obs


class Logistic:
    """Independent logistic distributions, mean and scale [batch, actions]."""

    def __init__(self, mean: Tensor, scale: Tensor):
        self.mean = mean
        self.scale = scale

    def noise(self, source: Source) -> Tensor:
        """Returns random numbers, the argument of `sample`."""
        return source.uniform(*self.mean.shape)

    def sample(self, noise: Tensor) -> Tensor:
        """Returns actions for exploration."""
        return self.mean + self.scale * torch.logit(noise, eps=1e-6)

    def mode(self) -> Tensor:
        """Returns the actions of evaluations."""
        return self.mean

    def log_prob(self, action: Tensor) -> Tensor:
        """Returns the log-density of each row of actions, [batch]."""
        z = (action - self.mean) / self.scale
        log_density = -z - 2 * softplus(-z) - self.scale.log()
        return log_density.sum(-1)

    def entropy(self) -> Tensor:
        """Returns the entropy of each row, [batch]."""
        return (self.scale.log() + 2).sum(-1)


@register("head", "my_head")
class MyHead(PolicyHead):
    """A linear layer from the features of the network to the distribution."""

    @config
    class Config:
        smallest: PositiveFloat = 0.05  # lower bound of the scale

    def __init__(self, cfg: Config, torso: nn.Module, space: Box, init_std: float):
        """space: of the actions. init_std: the setting `algo.init_std`, which is not used here."""
        super().__init__(torso, 2 * space.shape[0], gain=0.01)
        self.smallest = cfg.smallest

    def forward(self, *inputs: Obs) -> Logistic:  # type: ignore[override]
        """Returns the distribution of actions for observations [batch, ...]."""
        mean, scale = super().forward(*inputs).chunk(2, -1)
        return Logistic(mean, self.smallest + softplus(scale))
