"""Bayesian linear regression, one for each arm, from sums that grow with the data."""

import torch
from torch import Tensor, nn

from rlrun.core.random import Stream
from rlrun.functional.posteriors import normal_inverse_gamma, normal_inverse_gamma_draw


class BayesianRegression(nn.Module):
    """Normal-inverse-gamma posteriors over the weights of every arm; a constant is appended to the inputs."""

    xx: Tensor
    xy: Tensor
    yy: Tensor
    count: Tensor

    def __init__(self, arms: int, inputs: int, ridge: float, a0: float, b0: float):
        super().__init__()
        self.prior = ridge, a0, b0
        self.register_buffer("xx", torch.zeros(arms, inputs + 1, inputs + 1).double())
        self.register_buffer("xy", torch.zeros(arms, inputs + 1).double())
        self.register_buffer("yy", torch.zeros(arms).double())
        self.register_buffer("count", torch.zeros(arms).double())

    def forget(self) -> None:
        for total in (self.xx, self.xy, self.yy, self.count):
            total.zero_()

    def add(self, inputs: Tensor, arm: Tensor, reward: Tensor, weight: Tensor) -> None:
        """Data of any arms: inputs [batch, inputs], the others [batch]."""
        x, y, weight = extended(inputs), reward.double(), weight.double()
        self.xx.index_add_(0, arm, weight[:, None, None] * x.unsqueeze(-1) * x.unsqueeze(-2))
        self.xy.index_add_(0, arm, (weight * y).unsqueeze(-1) * x)
        self.yy.index_add_(0, arm, weight * y * y)
        self.count.index_add_(0, arm, weight)

    def posterior(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Mean [arms, d], precision [arms, d, d], a [arms], b [arms]."""
        return normal_inverse_gamma(self.xx, self.xy, self.yy, self.count, *self.prior)

    def mean(self, inputs: Tensor) -> Tensor:
        """Expected rewards [batch, arms]."""
        return extended(inputs) @ self.posterior()[0].mT

    def draw(self, inputs: Tensor, noise: Stream) -> Tensor:
        """Rewards [batch, arms] of weights drawn from the posterior, for every row anew."""
        mean, precision, a, b = self.posterior()
        gamma = noise.gamma(a.expand(len(inputs), -1))
        normal = noise.normal(len(inputs), *mean.shape).double()
        weights = normal_inverse_gamma_draw(mean, precision, b, gamma, normal)  # [batch, arms, d]
        return (weights * extended(inputs).unsqueeze(1)).sum(-1)


def extended(inputs: Tensor) -> Tensor:
    """[batch, d] to [batch, d + 1]."""
    return torch.cat([inputs.double(), torch.ones_like(inputs[:, :1]).double()], -1)
