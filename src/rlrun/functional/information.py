"""Bounds of the mutual information of x and y, from a network T(x, y).

joint: T of rows (x, y) from P(x, y). product: T of rows from P(x) P(y). Each is [batch]. The losses are of each row,
for which the two are paired; their mean is minus the bound.
"""

import math

from torch import Tensor
from torch.nn import functional as F

LOG_4 = math.log(4)
LARGEST = 20.0  # T is clipped to it before an exponential


def exp_clipped(product: Tensor) -> Tensor:
    """Returns exp(T), with T clipped from above."""
    return product.clamp(max=LARGEST).exp()


def donsker_varadhan(joint: Tensor, product: Tensor) -> Tensor:
    """Returns the bound mean T - log mean exp(T), [] (Belghazi et al. 2018, arXiv 1801.04062, eq. 10)."""
    return joint.mean() - exp_clipped(product).mean().log()


def donsker_varadhan_loss(joint: Tensor, product: Tensor, average: Tensor) -> Tensor:
    """Returns exp(T) / average - T of each row, [batch].

    Its gradient is that of minus the bound without the bias of a batch, if `average` is a moving average of mean exp(T)
    (arXiv 1801.04062, section 3.2).
    """
    return exp_clipped(product) / average.detach() - joint


def kl_loss(joint: Tensor, product: Tensor) -> Tensor:
    """Returns minus the bound T - exp(T) + 1 of each row, [batch] (Nguyen et al. 2010, arXiv 0809.0853)."""
    return exp_clipped(product) - joint - 1


def jensen_shannon_loss(joint: Tensor, product: Tensor) -> Tensor:
    """Returns softplus(-T) + softplus(T) - log 4 of each row, [batch] (Hjelm et al. 2019, arXiv 1808.06670, eq. 4).

    Minus its mean bounds twice the Jensen-Shannon divergence of joint and product, and no mutual information; its
    optimum is T = log P(x, y) - log P(x) P(y), whose mean over the joint is the mutual information.
    """
    return F.softplus(-joint) + F.softplus(product) - LOG_4
