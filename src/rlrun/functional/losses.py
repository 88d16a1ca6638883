"""Losses as plain functions. Every loss is weighted per row: importance weights, and 0 for masked steps."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


def weighted_mean(x: Tensor, weight: Tensor) -> Tensor:
    """Returns the mean of weight * x over the batch; x [..., batch], weight [batch]."""
    return (x * weight).mean()


def average(x: Tensor, weight: Tensor) -> Tensor:
    """Returns sum(weight * x) / sum(weight): masked rows are left out of the count too; both of one shape.

    0 where every row is masked.
    """
    weighted_sum = (x * weight).sum()
    total_weight = weight.sum().clamp(min=1e-8)
    return weighted_sum / total_weight


def moments(
    x: Tensor,
    rows: tuple[int, ...],
    keepdim: bool = False,
) -> tuple[Tensor, Tensor]:
    """Returns the mean and the (biased) variance over the dimensions `rows`; every row counts."""
    mean = x.mean(rows, keepdim=keepdim)
    variance = x.var(rows, correction=0, keepdim=keepdim)
    return mean, variance


def standardise(x: Tensor, weight: Tensor) -> Tensor:
    """Returns x with mean 0 and standard deviation 1 over the rows of weight 1; both of one shape.

    A single row has no standard deviation and is returned as it is.
    """
    count = weight.sum()
    centred = x - average(x, weight)
    sum_of_squares = (centred**2 * weight).sum()
    variance = sum_of_squares / (count - 1).clamp(min=1e-8)
    std = variance.sqrt()
    return torch.where(count > 1, centred / (std + 1e-8), x)


def ensemble_mse(
    q: Tensor,
    target: Tensor,
    weight: Tensor,
) -> Tensor:
    """Returns half the squared error, summed over members, averaged over the batch and the reward columns, if any.

    q [members, batch] or [members, batch, columns], target the same without members, weight [batch].
    """
    squared_error = (q - target) ** 2
    has_columns = squared_error.dim() > 1 + weight.dim()
    if has_columns:
        squared_error = squared_error.mean(-1)
    num_members = q.shape[0]
    return 0.5 * weighted_mean(squared_error, weight) * num_members


def expectile_error(error: Tensor, expectile: float) -> Tensor:
    """Returns |expectile - 1{error < 0}| error^2 per row (arXiv 2110.06169, eq. 5).

    The v that minimises its mean over errors x - v is an expectile of x: the mean for 0.5, near the maximum for 1.
    """
    weight = torch.where(error < 0, 1 - expectile, expectile)
    return weight * error**2


def advantage_weight(
    advantage: Tensor,
    temperature: float,
    limit: float,
) -> Tensor:
    """Returns min(exp(advantage / temperature), limit) per row, detached (arXiv 1910.00177, eq. 10).

    It weights behaviour cloning: actions of higher advantage are cloned more.
    """
    exponent = advantage.detach() / temperature
    return exponent.exp().clamp(max=limit)


def cloning_error(policy: Any, action: Tensor) -> Tensor:
    """Returns the behaviour cloning loss per row, [batch].

    It is -log p(action) of a distribution, and for the actions [batch, actions] of a deterministic policy the squared
    error summed over their dimensions.
    """
    if isinstance(policy, Tensor):
        squared_error = (policy - action) ** 2
        return squared_error.sum(-1)
    return -policy.log_prob(action)


def explained_variance(
    value: Tensor,
    target: Tensor,
    weight: Tensor,
) -> Tensor:
    """Returns 1 - var(target - value) / var(target) over the rows of weight 1, all of one shape.

    1 for a perfect critic, 0 for a constant one, less for a worse one; 0 where the target does not vary.
    """
    target_variance = _variance(target, weight)
    residual_variance = _variance(target - value, weight)
    explained = 1 - residual_variance / target_variance
    return torch.where(target_variance > 0, explained, 0.0)


def _variance(x: Tensor, weight: Tensor) -> Tensor:
    mean = average(x, weight)
    return average((x - mean) ** 2, weight)


class _ClippedSurrogate(torch.autograd.Function):
    """min(r A, clip(r) A); its gradient is A wherever r A is the minimum, which autograd finds in 20 operations."""

    @staticmethod
    def forward(
        ctx: Any,
        ratio: Tensor,
        advantage: Tensor,
        clip_range: Any,
    ) -> Tensor:
        unclipped = ratio * advantage
        clipped = ratio.clamp(1 - clip_range, 1 + clip_range) * advantage
        is_unclipped = unclipped <= clipped
        ctx.save_for_backward(advantage, is_unclipped)
        return torch.minimum(unclipped, clipped)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        advantage, is_unclipped = ctx.saved_tensors
        grad_ratio = grad * advantage * is_unclipped
        return grad_ratio, None, None


def clipped_surrogate(
    ratio: Tensor,
    advantage: Tensor,
    clip_range: float | Tensor,
) -> Tensor:
    """Returns PPO's clipped objective per row, to be maximised (arXiv 1707.06347, eq. 7); both [batch].

    min(ratio A, clip(ratio, 1 - clip_range, 1 + clip_range) A); the advantage is a constant.
    """
    return _ClippedSurrogate.apply(ratio, advantage, clip_range)


def clip_fraction(ratio: Tensor, clip_range: float | Tensor) -> Tensor:
    """Returns 1 where the probability ratio is outside of 1 - clip_range .. 1 + clip_range, else 0, per row."""
    distance = (ratio - 1).abs()
    return (distance > clip_range).to(ratio.dtype)


def kl_k1(log_ratio: Tensor) -> Tensor:
    """Returns an unbiased estimate of KL(old, new) per row, -log(new / old) of actions drawn from old.

    It can be negative.
    """
    return -log_ratio


def kl_k3(log_ratio: Tensor) -> Tensor:
    """Returns another unbiased estimate, (new / old) - 1 - log(new / old): never negative, with less variance
    (J. Schulman, "Approximating KL divergence", 2020)."""
    ratio = log_ratio.exp()
    return ratio - 1 - log_ratio


def clipped_value_error(
    value: Tensor,
    old_value: Tensor,
    target: Tensor,
    clip_range: float,
) -> Tensor:
    """Returns half the larger squared error of the value and of the value within clip_range of the old one; [batch]."""
    error = (value - target) ** 2
    if clip_range < float("inf"):
        change = (value - old_value).clamp(-clip_range, clip_range)
        clipped_value = old_value + change
        clipped_error = (clipped_value - target) ** 2
        error = torch.maximum(error, clipped_error)
    return 0.5 * error


def huber(error: Tensor, delta: float) -> Tensor:
    """Returns half the square up to delta, linear beyond, per row; delta may be infinite."""
    if delta == float("inf"):
        return 0.5 * error**2
    return F.huber_loss(error, torch.zeros_like(error), "none", delta)


def quantile_huber(
    quantiles: Tensor,
    target: Tensor,
    delta: float,
) -> Tensor:
    """Returns the quantile regression loss with Huber's (arXiv 1710.10044, eq. 10 and algorithm 1), per row: [batch].

        sum_i mean_j |tau_i - 1{target_j < quantile_i}| huber(target_j - quantile_i)    with tau_i = (2i + 1) / 2n

    quantiles [batch, n] estimate the quantiles tau_i of the distribution from which `target` [batch, m] is sampled.
    """
    n = quantiles.shape[-1]
    tau = (2 * torch.arange(n, device=quantiles.device) + 1) / (2 * n)
    error = target.unsqueeze(-2) - quantiles.unsqueeze(-1)  # [batch, n, m]
    is_below = (error.detach() < 0).to(error.dtype)
    weight = (tau.unsqueeze(-1) - is_below).abs()
    loss = weight * huber(error, delta)
    return loss.mean(-1).sum(-1)
