"""Divergences between action distributions, and the distances that a trust region limits."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from rlrun.functional.distributions import (
    Beta,
    Categorical,
    Deterministic,
    Independent,
    Joint,
    Normal,
    SquashedNormal,
)


class Sampled(Protocol):
    """A distribution that `kl_estimate` can compare with another one."""

    def sample(self, noise: Tensor) -> Tensor: ...
    def log_prob(self, action: Tensor) -> Tensor: ...


def kl(p: object, q: object) -> Tensor:
    """Returns KL(p || q) of two distributions of one kind, [...].

    Raises ValueError for distributions of unlike kinds, and for kinds whose divergence has no closed form.
    """
    match p, q:
        case Categorical(), Categorical():
            return _categorical(p, q)
        case Independent(), Independent():
            return _categorical(p.decisions, q.decisions).sum(-1)
        case Joint(), Joint():
            return kl(p.discrete, q.discrete) + kl(p.continuous, q.continuous)
    return _kl_of_dimensions(p, q).sum(-1)


def kl_estimate(p: Sampled, q: Sampled, noise: Tensor) -> Tensor:
    """Returns an unbiased estimate of KL(p || q) from samples, [...]: the mean of log p(x) - log q(x) with x from p.

    For kinds without a closed form, such as `Mixture` and `TruncatedNormal`. noise [samples, ...]: what `p.noise` draws
    for each sample.
    """
    x = p.sample(noise)
    return (p.log_prob(x) - q.log_prob(x)).mean(0)


def distances(p: object, q: object, sizes: Sequence[int]) -> Tensor:
    """Returns how far two policies are apart in every leaf of an action, [..., leaves].

    The squared difference of the logits, log p, for each decision; of the actions, if they are deterministic;
    otherwise KL(p || q) + KL(q || p). Choices that are masked in both distributions do not count. Logits notice changes
    of actions that are rare in both policies, which hardly change the divergence.

    sizes: number of dimensions of each continuous leaf. Raises ValueError like `kl`.
    """
    match p, q:
        case Categorical(), Categorical():
            return _squared_logits(p, q).unsqueeze(-1)
        case Independent(), Independent():
            return _squared_logits(p.decisions, q.decisions)
        case Joint(), Joint():
            return torch.cat([distances(p.discrete, q.discrete, []), distances(p.continuous, q.continuous, sizes)], -1)
        case Deterministic(), Deterministic():
            return _sums((p.action - q.action) ** 2, sizes)
    return _sums(_kl_of_dimensions(p, q), sizes) + _sums(_kl_of_dimensions(q, p), sizes)


def _sums(dimensions: Tensor, sizes: Sequence[int]) -> Tensor:
    """Returns the sum over the dimensions of each leaf: [..., actions] -> [..., leaves]."""
    leaves = [leaf.sum(-1) for leaf in dimensions.split([*sizes], -1)]
    return torch.stack(leaves, -1)


def _kl_of_dimensions(p: object, q: object) -> Tensor:
    """Returns KL(p || q) of every dimension of a continuous action, which are independent, [..., actions]."""
    match p, q:
        case Normal(), Normal():
            return _normal(p, q)
        case SquashedNormal(), SquashedNormal():  # tanh is a bijection, which leaves the divergence as it is
            return _normal(Normal(p.mean, p.log_std), Normal(q.mean, q.log_std))
        case Beta(), Beta() if (p.low, p.high) == (q.low, q.high):
            return _beta(p, q)
    raise ValueError(_refusal(p, q))


def _normal(p: Normal, q: Normal) -> Tensor:
    """KL(p || q) = log(std_q / std_p) + (std_p^2 + (mean_p - mean_q)^2) / (2 std_q^2) - 1/2"""
    log_ratio = p.log_std - q.log_std
    z = (p.mean - q.mean) * torch.exp(-q.log_std)
    return 0.5 * (torch.exp(2 * log_ratio) + z * z - 1) - log_ratio


def _categorical(p: Categorical, q: Categorical) -> Tensor:
    """KL(p || q) = sum p log(p / q), [...]; choices that p does not take contribute 0."""
    log_p = p.logits.log_softmax(-1)
    log_q = q.logits.log_softmax(-1)
    probability = log_p.exp()
    log_ratio = torch.where(probability > 0, log_p - log_q, 0.0)
    return (probability * log_ratio).sum(-1)


def _squared_logits(p: Categorical, q: Categorical) -> Tensor:
    log_p = p.logits.log_softmax(-1)
    log_q = q.logits.log_softmax(-1)
    is_masked = log_p.isneginf() & log_q.isneginf()
    change = (log_p - log_q).masked_fill(is_masked, 0.0)
    return (change**2).sum(-1)


def _beta(p: Beta, q: Beta) -> Tensor:
    """KL(p || q) = log(B_q / B_p) + (a_p - a_q) psi(a_p) + (b_p - b_q) psi(b_p) + (s_q - s_p) psi(s_p), s = a + b"""
    total = p.alpha + p.beta
    change = (q.alpha + q.beta) - total
    divergence = q.log_normaliser() - p.log_normaliser() + change * total.digamma()
    return divergence + (p.alpha - q.alpha) * p.alpha.digamma() + (p.beta - q.beta) * p.beta.digamma()


def _refusal(p: object, q: object) -> str:
    """Returns why there is no closed form of KL(p || q), in one line."""
    one, other = type(p).__name__, type(q).__name__
    if one != other:
        return f"no KL divergence of {one} and {other}: both must be of one kind"
    if isinstance(p, Beta):
        return "no KL divergence of two Beta distributions over different ranges"
    return f"no closed form of the KL divergence of {one}"
