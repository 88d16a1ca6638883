"""Losses as plain functions. Every loss is weighted per row: importance weights, and 0 for rows that are no step."""

import torch
from torch import Tensor


def weighted_mean(x: Tensor, weight: Tensor) -> Tensor:
    """Mean over the batch of weight * x; x [..., batch], weight [batch]."""
    return (x * weight).mean()


def ensemble_mse(q: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """Half the squared error, summed over members, averaged over the batch; q [members, batch], target [batch]."""
    return 0.5 * weighted_mean((q - target) ** 2, weight) * q.shape[0]


def clipped_surrogate(ratio: Tensor, advantage: Tensor, clip_range: float) -> Tensor:
    """PPO's pessimistic objective, to be maximised, per row (arXiv 1707.06347, eq. 7); both [batch]."""
    return torch.minimum(ratio * advantage, ratio.clamp(1 - clip_range, 1 + clip_range) * advantage)


def clipped_value_error(value: Tensor, old_value: Tensor, target: Tensor, clip_range: float) -> Tensor:
    """Half the worse squared error of the value and of the value kept within clip_range of the old one; [batch]."""
    clipped = old_value + (value - old_value).clamp(-clip_range, clip_range)
    return 0.5 * torch.maximum((value - target) ** 2, (clipped - target) ** 2)


def huber(error: Tensor, delta: float) -> Tensor:
    """Half the square up to delta, linear beyond, per row; delta may be infinite."""
    size = error.abs()
    inside = size.clamp(max=delta)
    return inside * (size - 0.5 * inside)


def quantile_huber(quantiles: Tensor, target: Tensor, delta: float) -> Tensor:
    """Quantile regression with Huber's loss (arXiv 1710.10044, eq. 10 and algorithm 1), per row: [batch].

    quantiles [batch, n] estimate the quantiles (2i + 1) / 2n of what `target` [batch, m] are samples of:
    sum_i mean_j |tau_i - 1{target_j < quantile_i}| huber(target_j - quantile_i).
    """
    n = quantiles.shape[-1]
    tau = (2 * torch.arange(n, device=quantiles.device) + 1) / (2 * n)
    error = target.unsqueeze(-2) - quantiles.unsqueeze(-1)  # [batch, n, m]
    share = (tau.unsqueeze(-1) - (error.detach() < 0).to(error.dtype)).abs()
    return (share * huber(error, delta)).mean(-1).sum(-1)
