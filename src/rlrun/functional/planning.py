"""Planners: the cheapest of many sequences of actions, by a cost function. No networks, and no random numbers.

Shapes: B rows, P candidates, H timesteps of the horizon, A size of an action. Rows do not influence each other.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

Cost = Callable[[Tensor], Tensor]  # action sequences [B, P, H, A] -> costs [B, P]


class ActionPlan(NamedTuple):
    """A normal distribution of action sequences, and the sequence to act with; all [B, H, A]."""

    mean: Tensor
    var: Tensor
    actions: Tensor


def random_shooting(cost: Cost, noise: Tensor, low: Tensor, high: Tensor, batch: int) -> Tensor:
    """Returns the cheapest of uniform sequences, [B, H, A] (Nagabandi et al. 2018, arXiv 1708.02596, section IV-D).

    noise [B or 1, P, H, A]: uniform in [0, 1). low, high [A]: limits of the actions. batch: B.
    """
    candidates = (low + (high - low) * noise).expand(batch, -1, -1, -1)
    return chosen(candidates, cost(candidates).argmin(1, keepdim=True))[:, 0]


def cem(
    cost: Cost,
    mean: Tensor,
    var: Tensor,
    noise: Tensor,
    low: Tensor,
    high: Tensor,
    elites: int,
    tau: float,
    epsilon: float,
    keep: int,
) -> ActionPlan:
    """Returns the plan of the cross-entropy method, as in Chua et al. 2018 (arXiv 1805.12114).

    In each iteration, mean and variance move by `tau` towards those of the cheapest `elites` of candidates that are
    drawn from them. A row is left as it is once none of its variances exceeds `epsilon`.

    mean, var [B, H, A]: of the first candidates. noise [iterations, B or 1, P, H, A]: normal. low, high [A]: limits of
    the actions. keep: the cheapest candidates of an iteration that are candidates of the next one, which the mean is
    too; then the plan acts with the cheapest candidate of all, as in Pinneri et al. 2020 (arXiv 2008.06389). With 0, it
    acts with the mean.
    """
    kept: list[Tensor] = []
    is_running = torch.ones_like(mean[:, :1, :1])
    actions = mean
    for draw in noise:
        candidates = (mean.unsqueeze(1) + var.sqrt().unsqueeze(1) * draw).clamp(low, high)
        candidates = torch.cat([candidates, *kept], 1)
        best = cost(candidates).topk(elites, dim=1, largest=False).indices
        elite = chosen(candidates, best)
        mean = torch.lerp(mean, elite.mean(1), tau * is_running)
        var = torch.lerp(var, elite.var(1, correction=0), tau * is_running)
        if keep:
            actions = torch.lerp(actions, elite[:, 0], is_running)
            kept = [elite[:, :keep], mean.unsqueeze(1)]
        else:
            actions = mean
        is_running = is_running * (var.amax((1, 2), keepdim=True) > epsilon)
    return ActionPlan(mean, var, actions)


def mppi(
    cost: Cost,
    mean: Tensor,
    std: Tensor,
    noise: Tensor,
    low: Tensor,
    high: Tensor,
    elites: int,
    temperature: float,
    min_std: float,
    max_std: float,
) -> ActionPlan:
    """Returns the plan of model predictive path integral control (Williams et al. 2015, arXiv 1509.01149).

    In each iteration, mean and standard deviation become those of the cheapest `elites`, weighted by
    exp(temperature * (least cost - cost)), as in Hansen et al. 2022 (arXiv 2203.04955, eq. 4 and 5). The plan acts with
    the mean.

    mean, std [B, H, A]: of the first candidates. noise [iterations, B or 1, P, H, A]: normal. low, high [A]: limits of
    the actions. min_std, max_std: limits of the standard deviation.
    """
    for draw in noise:
        candidates = (mean.unsqueeze(1) + std.unsqueeze(1) * draw).clamp(low, high)
        best = cost(candidates).topk(elites, dim=1, largest=False)
        weight = (-temperature * best.values).softmax(1)[..., None, None]
        elite = chosen(candidates, best.indices)
        mean = (weight * elite).sum(1)
        var = (weight * (elite - mean.unsqueeze(1)) ** 2).sum(1)
        std = var.sqrt().clamp(min_std, max_std)
    return ActionPlan(mean, std**2, mean)


def chosen(candidates: Tensor, index: Tensor) -> Tensor:
    """Returns candidates [B, n, H, A] by their indices [B, n]."""
    return candidates.gather(1, index[..., None, None].expand(-1, -1, *candidates.shape[2:]))


def shifted(plan: Tensor) -> Tensor:
    """Returns the plan [B, H, A] one timestep later. Its last action is the mean action of the plan."""
    return torch.cat([plan[:, 1:], plan.mean(1, keepdim=True)], 1)


def correlated(noise: Tensor, correlation: float) -> Tensor:
    """Returns standard normal noise [..., H, A] whose successive timesteps correlate.

    e_0 = n_0 and e_h = b e_(h-1) + sqrt(1 - b^2) n_h for noise n without correlation, where b is `correlation`.
    """
    found = [noise[..., 0, :]]
    for h in range(1, noise.shape[-2]):
        found.append(correlation * found[-1] + (1 - correlation**2) ** 0.5 * noise[..., h, :])
    return torch.stack(found, -2)


def mean_over_copies(returns: Tensor, rows: int, candidates: int) -> Tensor:
    """Returns the mean [B, P] of returns [n, B * P * particles] over the n members and the particles."""
    per_candidate: Tensor = returns.unflatten(1, (rows, candidates, -1))
    return per_candidate.mean((0, 3))
