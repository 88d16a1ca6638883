"""Distributions over returns: on fixed atoms, as histograms, and as quantiles (distributional RL)."""

import torch
from torch import Tensor
from torch.nn import functional as F


def project(
    position: Tensor,
    probability: Tensor,
    atoms: Tensor,
) -> Tensor:
    """Returns a distribution projected onto evenly spaced atoms, [..., atoms] (arXiv 1707.06887, eq. 7).

        p_i = sum_j probability_j * max(0, 1 - |clip(position_j, v_min, v_max) - atom_i| / gap)

    position and probability [..., n], atoms [atoms] in ascending order. The probability of a position between two
    atoms is split by distance; positions outside [v_min, v_max] count as the nearest end. The projection preserves
    total probability, and also the mean if no position is clipped.
    """
    v_min = atoms[0]
    v_max = atoms[-1]
    gap = atoms[1] - atoms[0]
    clipped = position.clamp(v_min, v_max).unsqueeze(-1)
    distance = (clipped - atoms).abs() / gap  # [..., n, atoms]
    share = (1 - distance).clamp(min=0)
    return (probability.unsqueeze(-1) * share).sum(-2)


def gaussian_histogram(
    mean: Tensor,
    std: float,
    edges: Tensor,
) -> Tensor:
    """Returns the probabilities of the bins under a truncated normal distribution, [..., bins] (arXiv 2403.03950,
    sec. 3.1).

        p_i = (Phi((edge_{i+1} - mean) / std) - Phi((edge_i - mean) / std)) / total

    mean [...], clipped to the range of the edges; edges [bins + 1] in ascending order. `total` is the probability of
    all bins before the division.
    """
    clipped = mean.clamp(edges[0], edges[-1]).unsqueeze(-1)
    below: Tensor = torch.special.ndtr((edges - clipped) / std)  # [..., bins + 1]
    total = below[..., -1:] - below[..., :1]
    return below.diff(dim=-1) / total


def kl_divergence(target: Tensor, logits: Tensor) -> Tensor:
    """Returns KL(target || softmax(logits)) over the last dimension; target [..., n] is broadcast to logits."""
    log_probability = logits.log_softmax(-1)
    return F.kl_div(log_probability, target.expand_as(logits), reduction="none").sum(-1)


def truncated(quantiles: Tensor, dropped: int) -> Tensor:
    """Returns the pooled quantiles of all members in ascending order, without the `dropped` * members highest
    (arXiv 2005.04269, eq. 11).

    quantiles [members, ..., n] -> [..., (n - dropped) * members].
    """
    members = quantiles.shape[0]
    n = quantiles.shape[-1]
    pooled = quantiles.movedim(0, -2).flatten(-2)
    ascending = pooled.sort(-1).values
    return ascending[..., : (n - dropped) * members]
