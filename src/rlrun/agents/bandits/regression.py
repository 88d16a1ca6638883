"""Bayesian linear regressions, one per arm, from sufficient statistics of the data."""

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
        self.ridge = ridge
        self.a0 = a0
        self.b0 = b0
        d = inputs + 1
        self.register_buffer("xx", torch.zeros(arms, d, d).double())
        self.register_buffer("xy", torch.zeros(arms, d).double())
        self.register_buffer("yy", torch.zeros(arms).double())
        self.register_buffer("count", torch.zeros(arms).double())

    def forget(self) -> None:
        """Removes all data, which resets the posterior to the prior."""
        for total in (self.xx, self.xy, self.yy, self.count):
            total.zero_()

    def add(self, inputs: Tensor, arm: Tensor, reward: Tensor, weight: Tensor) -> None:
        """Adds data of any arms. inputs is [batch, inputs]; arm, reward and weight are [batch]."""
        x = extended(inputs)
        y = reward.double()
        weight = weight.double()
        for k in arm.unique().tolist():
            mine = arm == k
            x_k = x[mine]
            y_k = y[mine]
            weight_k = weight[mine]
            weighted_x = weight_k.unsqueeze(-1) * x_k
            self.xx[k] += weighted_x.mT @ x_k
            self.xy[k] += weighted_x.mT @ y_k
            self.yy[k] += weight_k @ (y_k * y_k)
            self.count[k] += weight_k.sum()

    def posterior(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Returns the posterior: mean [arms, d], precision [arms, d, d], a [arms], b [arms]."""
        return normal_inverse_gamma(self.xx, self.xy, self.yy, self.count, self.ridge, self.a0, self.b0)

    def mean(self, inputs: Tensor) -> Tensor:
        """Returns the expected rewards, [batch, arms]."""
        mean, _, _, _ = self.posterior()
        return extended(inputs) @ mean.mT

    def draw(self, inputs: Tensor, noise: Stream) -> Tensor:
        """Returns rewards [batch, arms] predicted by weights that are drawn from the posterior anew for every row."""
        mean, precision, a, b = self.posterior()
        gamma = noise.gamma(a.expand(len(inputs), -1))
        normal = noise.normal(len(inputs), *mean.shape).double()
        weights = normal_inverse_gamma_draw(mean, precision, b, gamma, normal)  # [batch, arms, d]
        x = extended(inputs).unsqueeze(1)
        return (weights * x).sum(-1)


def extended(inputs: Tensor) -> Tensor:
    """Returns inputs [batch, d] with a constant 1 appended, [batch, d + 1]."""
    constant = torch.ones_like(inputs[:, :1])
    return torch.cat([inputs.double(), constant.double()], -1)
