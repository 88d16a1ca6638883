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
