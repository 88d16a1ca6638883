"""Loss functions, and means over a batch that apply importance weights, or weights of 0 for masked steps."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from rlrun.functional.distributions import LOG_2PI


def batch_mean(x: Tensor) -> Tensor:
    """Returns the mean of x over all rows of the batch and all other dimensions."""
    return x.mean()


def weighted_mean(x: Tensor, weight: Tensor) -> Tensor:
    """Returns the mean of weight * x over all entries; x [..., batch], weight [batch]. Not divided by sum(weight)."""
    return batch_mean(x * weight)


def masked_mean(x: Tensor, weight: Tensor) -> Tensor:
    """Returns sum(weight * x) / sum(weight), the mean over the rows that are not masked.

    x and weight have the same shape. The result is 0 if every row is masked. Raises ValueError if the shapes differ,
    because broadcasting would hide the mistake.
    """
    if x.shape != weight.shape:
        raise ValueError(f"x and weight must have the same shape, but have {[*x.shape]} and {[*weight.shape]}")
    weighted_sum = (x * weight).sum()
    total_weight = weight.sum().clamp(min=1e-8)
    return weighted_sum / total_weight


def standardise(x: Tensor, weight: Tensor) -> Tensor:
    """Returns x with mean 0 and standard deviation 1 over the rows of weight 1. x and weight have the same shape.

    If at most one row has weight 1, the standard deviation is undefined and x is returned unchanged.
    """
    count = weight.sum()
    centred = x - masked_mean(x, weight)
    sum_of_squares = (centred**2 * weight).sum()
    variance = sum_of_squares / (count - 1).clamp(min=1e-8)
    std = variance.sqrt()
    return torch.where(count > 1, centred / (std + 1e-8), x)


def mean_over_columns(x: Tensor) -> Tensor:
    """Returns the mean over any columns of reward vectors, [batch]; x is [batch] or [batch, columns]."""
    if x.dim() > 1:
        x = x.mean(-1)
    return x


def sum_over_members(losses: Tensor, weight: Tensor) -> Tensor:
    """Returns losses summed over members, and averaged over the batch and any columns of reward vectors.

    losses is [members, batch] or [members, batch, columns], weight is [batch].
    """
    has_columns = losses.dim() > 1 + weight.dim()
    if has_columns:
        losses = losses.mean(-1)
    num_members = losses.shape[0]
    return weighted_mean(losses, weight) * num_members  # the mean is over members and batch


def ensemble_mse(
    q: Tensor,
    target: Tensor,
    weight: Tensor,
) -> Tensor:
    """Returns half the squared error, summed over members, averaged over the batch and any columns of reward vectors.

    q is [members, batch] or [members, batch, columns], target is q's shape without members, weight is [batch].
    """
    return sum_over_members(0.5 * (q - target) ** 2, weight)


def expectile_weight(error: Tensor, expectile: float) -> Tensor:
    """Returns the weight |expectile - 1{error < 0}| of the squared error of each row (arXiv 2110.06169, eq. 5).

    If error = x - v, the v that minimises the mean loss is an expectile of x: the mean of x for expectile 0.5, and
    close to the maximum of x for an expectile near 1.
    """
    return torch.where(error < 0, 1 - expectile, expectile)


def advantage_weight(
    advantage: Tensor,
    temperature: float,
    limit: float,
) -> Tensor:
    """Returns min(exp(advantage / temperature), limit) per row, detached (arXiv 1910.00177, eq. 10).

    These are weights for behaviour cloning: actions with a higher advantage get a larger weight.
    """
    exponent = advantage.detach() / temperature
    return exponent.exp().clamp(max=limit)


def cloning_error(policy: Any, action: Tensor) -> Tensor:
    """Returns the behaviour cloning loss per row, [batch].

    For a distribution the loss is -log p(action). For the actions [batch, actions] of a deterministic policy it is the
    squared error, summed over the action dimensions.
    """
    if isinstance(policy, Tensor):
        if policy.shape != action.shape:
            raise ValueError(f"actions {tuple(action.shape)} of a policy with actions {tuple(policy.shape)}")
        squared_error = (policy - action) ** 2
        return squared_error.sum(-1)
    log_prob: Tensor = policy.log_prob(action)
    return -log_prob


def explained_variance(
    value: Tensor,
    target: Tensor,
    weight: Tensor,
) -> Tensor:
    """Returns 1 - var(target - value) / var(target) over the rows of weight 1. All arguments have the same shape.

    It is 1 for a perfect critic, 0 for a constant prediction, and negative for a critic that is worse than a constant.
    If the target is constant, the result is 0.
    """
    target_variance = _variance(target, weight)
    residual_variance = _variance(target - value, weight)
    explained = 1 - residual_variance / target_variance
    return torch.where(target_variance > 0, explained, 0.0)


def _variance(x: Tensor, weight: Tensor) -> Tensor:
    mean = masked_mean(x, weight)
    return masked_mean((x - mean) ** 2, weight)


class _ClippedSurrogate(torch.autograd.Function):
    """Computes min(r A, clip(r) A). The gradient is A if r A is the minimum, else 0.

    The backward pass is written by hand for speed: autograd needs 20 operations for it.
    """

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
    """Returns PPO's clipped objective per row, to be maximised (arXiv 1707.06347, eq. 7).

    The objective is min(ratio A, clip(ratio, 1 - clip_range, 1 + clip_range) A); ratio and advantage A are [batch]. No
    gradient flows to the advantage.
    """
    objective: Tensor = _ClippedSurrogate.apply(ratio, advantage, clip_range)  # type: ignore[no-untyped-call]
    return objective


def clip_fraction(ratio: Tensor, clip_range: float | Tensor) -> Tensor:
    """Returns 1 per row if the probability ratio is outside [1 - clip_range, 1 + clip_range], else 0."""
    distance = (ratio - 1).abs()
    return (distance > clip_range).to(ratio.dtype)


def kl_k1(log_ratio: Tensor) -> Tensor:
    """Returns -log(new / old) per row, an unbiased estimate of KL(old, new) if actions are drawn from old.

    The estimate can be negative.
    """
    return -log_ratio


def kl_k3(log_ratio: Tensor) -> Tensor:
    """Returns (new / old) - 1 - log(new / old) per row, also an unbiased estimate of KL(old, new).

    It is never negative and has a lower variance than `kl_k1` (J. Schulman, "Approximating KL divergence", 2020).
    """
    ratio = log_ratio.exp()
    return ratio - 1 - log_ratio


def clipped_value_error(
    value: Tensor,
    old_value: Tensor,
    target: Tensor,
    clip_range: float,
    delta: float = float("inf"),
) -> Tensor:
    """Returns PPO's clipped value loss, [batch].

    It is the larger of two Huber losses with threshold delta: that of the value, and that of the value clipped to
    within clip_range of the old value. With an infinite delta, they are half the squared errors.
    """
    loss = huber(value - target, delta)
    if clip_range < float("inf"):
        change = (value - old_value).clamp(-clip_range, clip_range)
        clipped_value = old_value + change
        loss = torch.maximum(loss, huber(clipped_value - target, delta))
    return loss


def normal_error(mean: Tensor, target: Tensor, log_std: Tensor) -> Tensor:
    """Returns -log N(target; mean, exp(log_std)^2) of each dimension, in the shape that the arguments broadcast to."""
    z = (target - mean) * torch.exp(-log_std)
    return 0.5 * z * z + log_std + 0.5 * LOG_2PI


def huber(error: Tensor, delta: float) -> Tensor:
    """Returns the Huber loss per row: error^2 / 2 up to delta, linear above delta. delta may be infinite."""
    if delta == float("inf"):
        return 0.5 * error**2
    return F.huber_loss(error, torch.zeros_like(error), "none", delta)


def quantile_huber(
    quantiles: Tensor,
    target: Tensor,
    delta: float,
    sum_over_quantiles: bool = True,
) -> Tensor:
    """Returns the quantile Huber loss, [...] (arXiv 1710.10044, eq. 10 and algorithm 1).

        sum_i mean_j |tau_i - 1{target_j < quantile_i}| huber(target_j - quantile_i)    with tau_i = (2i + 1) / 2n

    Without `sum_over_quantiles`, it is divided by n and by delta, so that neither changes its scale.
    `target` [..., m] are samples of a distribution. quantiles [..., n] estimate its quantiles at tau_i.
    """
    n = quantiles.shape[-1]
    i = torch.arange(n, device=quantiles.device)
    tau = (2 * i + 1) / (2 * n)
    error = target.unsqueeze(-2) - quantiles.unsqueeze(-1)  # [..., n, m]
    is_below = (error.detach() < 0).to(error.dtype)
    weight = (tau.unsqueeze(-1) - is_below).abs()
    loss = (weight * huber(error, delta)).mean(-1)
    if sum_over_quantiles:
        return loss.sum(-1)
    return loss.mean(-1) / delta
