"""Losses as plain functions. Every loss is weighted per row: importance weights, and 0 for rows that are no step."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


def weighted_mean(x: Tensor, weight: Tensor) -> Tensor:
    """Mean over the batch of weight * x; x [..., batch], weight [batch]."""
    return (x * weight).mean()


def average(x: Tensor, weight: Tensor) -> Tensor:
    """sum(weight * x) / sum(weight): rows of weight 0 are not counted either; both of one shape. 0 of no rows."""
    return (x * weight).sum() / weight.sum().clamp(min=1e-8)


def moments(x: Tensor, rows: tuple[int, ...], keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Mean and (biased) variance over these dimensions, every row counted."""
    return x.mean(rows, keepdim=keepdim), x.var(rows, correction=0, keepdim=keepdim)


def standardise(x: Tensor, weight: Tensor) -> Tensor:
    """Mean 0 and deviation 1 over the rows that count; both of one shape. A single row has no deviation: as it is."""
    rows = weight.sum()
    centred = x - average(x, weight)
    deviation = ((centred**2 * weight).sum() / (rows - 1).clamp(min=1e-8)).sqrt()
    return torch.where(rows > 1, centred / (deviation + 1e-8), x)


def ensemble_mse(q: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """Half the squared error, summed over members, averaged over the batch and, where q has them, reward columns;
    q [members, batch] or [members, batch, columns], target without members, weight [batch]."""
    error = (q - target) ** 2
    rows = error.mean(-1) if error.dim() > 1 + weight.dim() else error
    return 0.5 * weighted_mean(rows, weight) * q.shape[0]


def expectile_error(error: Tensor, expectile: float) -> Tensor:
    """|expectile - 1{error < 0}| error^2 per row (arXiv 2110.06169, eq. 5).

    The v that makes its mean over errors x - v least is an expectile of x: its mean for 0.5, towards its maximum for 1.
    """
    return torch.where(error < 0, 1 - expectile, expectile) * error**2


def advantage_weight(advantage: Tensor, temperature: float, limit: float) -> Tensor:
    """min(exp(advantage / temperature), limit) per row, a constant: how much a policy clones an action that is so much
    better than the rest (arXiv 1910.00177, eq. 10)."""
    return (advantage.detach() / temperature).exp().clamp(max=limit)


def cloning_error(policy: Any, action: Tensor) -> Tensor:
    """-log p(action) of a distribution; of a deterministic policy's actions [batch, actions] the squared error, summed
    over their dimensions; [batch]."""
    return ((policy - action) ** 2).sum(-1) if isinstance(policy, Tensor) else -policy.log_prob(action)


def explained_variance(value: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """1 - var(target - value) / var(target) over the rows that count, all of one shape: 1 of a perfect critic, 0 of one
    that says a constant, less of one that is worse. 0 where the target does not vary."""

    def variance(x: Tensor) -> Tensor:
        return average((x - average(x, weight)) ** 2, weight)

    of_target = variance(target)
    return torch.where(of_target > 0, 1 - variance(target - value) / of_target, 0.0)


class _ClippedSurrogate(torch.autograd.Function):
    """min(r A, clip(r) A); its gradient is A wherever the first is the least, which autograd takes 20 steps to find."""

    @staticmethod
    def forward(ctx, ratio, advantage, clip_range):
        plain, clipped = ratio * advantage, ratio.clamp(1 - clip_range, 1 + clip_range) * advantage
        ctx.save_for_backward(advantage, plain <= clipped)
        return torch.minimum(plain, clipped)

    @staticmethod
    def backward(ctx, grad):
        advantage, chosen = ctx.saved_tensors
        return grad * advantage * chosen, None, None


def clipped_surrogate(ratio: Tensor, advantage: Tensor, clip_range: float | Tensor) -> Tensor:
    """PPO's pessimistic objective, to be maximised, per row (arXiv 1707.06347, eq. 7); both [batch].

    min(ratio A, clip(ratio, 1 - clip_range, 1 + clip_range) A); the advantage is a constant.
    """
    return _ClippedSurrogate.apply(ratio, advantage, clip_range)


def clip_fraction(ratio: Tensor, clip_range: float | Tensor) -> Tensor:
    """1 where the probability ratio has left 1 - clip_range .. 1 + clip_range, else 0, per row."""
    return ((ratio - 1).abs() > clip_range).to(ratio.dtype)


def kl_k1(log_ratio: Tensor) -> Tensor:
    """Unbiased estimate of KL(old, new) per row, -log(new / old) of actions drawn from old; can be negative."""
    return -log_ratio


def kl_k3(log_ratio: Tensor) -> Tensor:
    """(new / old) - 1 - log(new / old) of actions drawn from old: unbiased too, never negative, of less variance
    (J. Schulman, "Approximating KL divergence", 2020)."""
    return log_ratio.exp() - 1 - log_ratio


def clipped_value_error(value: Tensor, old_value: Tensor, target: Tensor, clip_range: float) -> Tensor:
    """Half the worse squared error of the value and of the value kept within clip_range of the old one; [batch]."""
    error = (value - target) ** 2
    if clip_range < float("inf"):
        clipped = old_value + (value - old_value).clamp(-clip_range, clip_range)
        error = torch.maximum(error, (clipped - target) ** 2)
    return 0.5 * error


def huber(error: Tensor, delta: float) -> Tensor:
    """Half the square up to delta, linear beyond, per row; delta may be infinite."""
    return 0.5 * error**2 if delta == float("inf") else F.huber_loss(error, torch.zeros_like(error), "none", delta)


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
