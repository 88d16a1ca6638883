"""Action distributions as thin views of a network's output. Noise is an argument, so that kernels draw nothing."""

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

LOG_2PI = math.log(2 * math.pi)
LOG_2 = math.log(2)


class Source(Protocol):
    """Where noise comes from: a named stream of random numbers."""

    def normal(self, *shape: int) -> Tensor: ...
    def uniform(self, *shape: int) -> Tensor: ...


def tanh_log_det(u: Tensor) -> Tensor:
    """log |d tanh(u) / du|, exact however far u saturates; summed over the last dimension."""
    return 2 * (LOG_2 - u - F.softplus(-2 * u)).sum(-1)


class _NormalLogProb(torch.autograd.Function):
    """log p(action) = -sum(z^2 / 2 + log_std + log(2 pi) / 2) with z = (action - mean) / std, and its gradients."""

    @staticmethod
    def forward(ctx, action, mean, log_std):
        ctx.save_for_backward(action, mean, log_std)
        scaled = (action - mean) * torch.exp(-log_std)
        return -torch.addcmul(log_std, scaled, scaled, value=0.5).sum(-1) - 0.5 * LOG_2PI * mean.shape[-1]

    @staticmethod
    def backward(ctx, grad):
        action, mean, log_std = ctx.saved_tensors
        inverse, grad = torch.exp(-log_std), grad.unsqueeze(-1)
        scaled = (action - mean) * inverse
        by_mean = grad * scaled * inverse
        return (-by_mean if ctx.needs_input_grad[0] else None), by_mean, grad * (scaled * scaled - 1)


class _SquashedSample(torch.autograd.Function):
    """tanh(u) and its log-probability for u = mean + std * noise.

    d log_prob / du = 2 tanh(u), for log |d tanh(u) / du| has the derivative -2 tanh(u).
    """

    @staticmethod
    def forward(ctx, mean, log_std, noise):
        u = torch.addcmul(mean, torch.exp(log_std), noise)
        action = torch.tanh(u)
        ctx.save_for_backward(log_std, noise, action)
        gaussian = torch.addcmul(log_std, noise, noise, value=0.5).sum(-1) + 0.5 * LOG_2PI * mean.shape[-1]
        return action, -gaussian - tanh_log_det(u)

    @staticmethod
    def backward(ctx, by_action, by_log_prob):
        log_std, noise, action = ctx.saved_tensors
        by_log_prob = by_log_prob.unsqueeze(-1)
        by_u = by_action * (1 - action * action) + 2 * action * by_log_prob
        return by_u, by_u * torch.exp(log_std) * noise - by_log_prob, None


@dataclass
class Normal:
    """Diagonal Gaussian; mean and log_std [..., actions]."""

    mean: Tensor
    log_std: Tensor

    def widened(self, std: float) -> "Normal":
        """Of a sample plus independent noise of mean 0 and this deviation: the variances add up."""
        return Normal(self.mean, 0.5 * torch.log(torch.exp(2 * self.log_std) + std**2))

    def noise(self, source: Source) -> Tensor:
        return source.normal(*self.mean.shape)

    def sample(self, noise: Tensor) -> Tensor:
        return self.mean + self.log_std.exp() * noise

    def mode(self) -> Tensor:
        return self.mean

    def log_prob(self, action: Tensor) -> Tensor:
        return _NormalLogProb.apply(action, self.mean, self.log_std)

    def entropy(self) -> Tensor:
        return (self.log_std + 0.5 * (1 + LOG_2PI)).sum(-1)


@dataclass
class SquashedNormal:
    """A Gaussian squashed by tanh into (-1, 1) (arXiv 1812.05905, appendix C); mean and log_std [..., actions]."""

    mean: Tensor
    log_std: Tensor

    def noise(self, source: Source) -> Tensor:
        return source.normal(*self.mean.shape)

    def sample(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Action and its log-probability, which is exact at saturation because u is known."""
        return _SquashedSample.apply(self.mean, self.log_std, noise)

    def mode(self) -> Tensor:
        return torch.tanh(self.mean)

    def log_prob(self, action: Tensor) -> Tensor:
        """Of a given action; one that was rounded to -1 or 1 counts as the last float inside."""
        bound = 1 - torch.finfo(action.dtype).eps / 2
        u = torch.atanh(action.clamp(-bound, bound))
        return Normal(self.mean, self.log_std).log_prob(u) - tanh_log_det(u)


@dataclass
class Categorical:
    """logits [..., choices]."""

    logits: Tensor

    def noise(self, source: Source) -> Tensor:
        return source.uniform(*self.logits.shape)

    def sample(self, noise: Tensor) -> Tensor:
        """By the Gumbel trick."""
        return (self.logits - torch.log(-torch.log(noise.clamp(min=1e-20)))).argmax(-1)

    def mode(self) -> Tensor:
        return self.logits.argmax(-1)

    def log_prob(self, action: Tensor) -> Tensor:
        return self.logits.log_softmax(-1).gather(-1, action.long().unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        log_p = self.logits.log_softmax(-1)
        finite = log_p.clamp(min=torch.finfo(log_p.dtype).min)  # an impossible choice (logit -inf) adds 0
        return -(log_p.exp() * finite).sum(-1)


@dataclass
class Independent:
    """Several decisions, each for itself: log-probabilities and entropies of `parts` add up."""

    parts: Categorical  # logits [..., decisions, choices]

    def noise(self, source: Source) -> Tensor:
        return self.parts.noise(source)

    def sample(self, noise: Tensor) -> Tensor:
        return self.parts.sample(noise)

    def mode(self) -> Tensor:
        return self.parts.mode()

    def log_prob(self, action: Tensor) -> Tensor:
        return self.parts.log_prob(action).sum(-1)

    def entropy(self) -> Tensor:
        return self.parts.entropy().sum(-1)


def masked(scores: Tensor, mask: Tensor) -> Tensor:
    """Scores [..., choices] with -inf where the mask, of the same shape, is 0: probability 0, and never the best.

    A mask that forbids everything, as environments show where an episode is over, forbids nothing.
    """
    legal = mask.bool()
    return scores.masked_fill(~legal & legal.any(-1, keepdim=True), float("-inf"))
