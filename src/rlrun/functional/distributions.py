"""Action distributions that take network outputs as parameters. `sample` takes its noise as an argument, because
kernels must not draw random numbers."""

import math
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

LOG_2PI = math.log(2 * math.pi)
LOG_2 = math.log(2)


class Source(Protocol):
    """A source of random numbers, such as a named stream."""

    def normal(self, *shape: int) -> Tensor: ...
    def uniform(self, *shape: int) -> Tensor: ...


def tanh_log_det(u: Tensor) -> Tensor:
    """Returns log |d tanh(u) / du|, summed over the last dimension.

    Computed as 2 (log 2 - u - softplus(-2u)), because 1 - tanh(u)^2 rounds to 0 for large |u|.
    """
    log_derivative = LOG_2 - u - F.softplus(-2 * u)
    return 2 * log_derivative.sum(-1)


class _NormalLogProb(torch.autograd.Function):
    """log p(action) = -sum(z^2 / 2 + log_std + log(2 pi) / 2) with z = (action - mean) / std, and its gradients.

    d log p / d mean = z / std,  d log p / d action = -z / std,  d log p / d log_std = z^2 - 1
    """

    @staticmethod
    def forward(
        ctx: Any,
        action: Tensor,
        mean: Tensor,
        log_std: Tensor,
    ) -> Tensor:
        ctx.save_for_backward(action, mean, log_std)
        z = (action - mean) * torch.exp(-log_std)
        half_square = torch.addcmul(log_std, z, z, value=0.5)  # log_std + z^2 / 2
        normaliser = 0.5 * LOG_2PI * mean.shape[-1]
        return -half_square.sum(-1) - normaliser

    @staticmethod
    def backward(ctx: Any, grad_log_prob: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        action, mean, log_std = ctx.saved_tensors
        inverse_std = torch.exp(-log_std)
        z = (action - mean) * inverse_std
        grad_log_prob = grad_log_prob.unsqueeze(-1)
        grad_mean = grad_log_prob * z * inverse_std
        grad_action = None
        if ctx.needs_input_grad[0]:
            grad_action = -grad_mean
        grad_log_std = grad_log_prob * (z * z - 1)
        return grad_action, grad_mean, grad_log_std


class _SquashedSample(torch.autograd.Function):
    """tanh(u) and its log-probability for u = mean + std * noise, and their gradients.

    For fixed noise, d log_prob / du = 2 tanh(u), because the derivative of log |d tanh(u) / du| is -2 tanh(u).
    """

    @staticmethod
    def forward(
        ctx: Any,
        mean: Tensor,
        log_std: Tensor,
        noise: Tensor,
    ) -> tuple[Tensor, Tensor]:
        u = torch.addcmul(mean, torch.exp(log_std), noise)
        action = torch.tanh(u)
        ctx.save_for_backward(log_std, noise, action)
        half_square = torch.addcmul(log_std, noise, noise, value=0.5)  # log_std + noise^2 / 2
        normaliser = 0.5 * LOG_2PI * mean.shape[-1]
        negative_log_prob_of_u = half_square.sum(-1) + normaliser
        log_prob = -negative_log_prob_of_u - tanh_log_det(u)
        return action, log_prob

    @staticmethod
    def backward(
        ctx: Any,
        grad_action: Tensor,
        grad_log_prob: Tensor,
    ) -> tuple[Tensor, Tensor, None]:
        log_std, noise, action = ctx.saved_tensors
        grad_log_prob = grad_log_prob.unsqueeze(-1)
        tanh_derivative = 1 - action * action
        grad_u = grad_action * tanh_derivative + 2 * action * grad_log_prob
        grad_log_std = grad_u * torch.exp(log_std) * noise - grad_log_prob
        return grad_u, grad_log_std, None


@dataclass
class Normal:
    """A diagonal Gaussian distribution; mean and log_std [..., actions]."""

    mean: Tensor
    log_std: Tensor

    def plus(self, mean: Tensor, variance: Tensor) -> "Normal":
        """Returns the distribution of a sample plus independent Gaussian noise; mean and variance of the noise
        broadcast to [..., actions]."""
        own_variance = torch.exp(2 * self.log_std)
        log_std = 0.5 * torch.log(own_variance + variance)
        return Normal(self.mean + mean, log_std)

    def noise(self, source: Source) -> Tensor:
        """Draws the noise that `sample` takes."""
        return source.normal(*self.mean.shape)

    def sample(self, noise: Tensor) -> Tensor:
        """Returns an action, [..., actions]."""
        std = self.log_std.exp()
        return self.mean + std * noise

    def mode(self) -> Tensor:
        """Returns the most likely action, [..., actions]."""
        return self.mean

    def log_prob(self, action: Tensor) -> Tensor:
        """Returns the log-probability of an action, [...]."""
        log_prob: Tensor = _NormalLogProb.apply(action, self.mean, self.log_std)  # type: ignore[no-untyped-call]
        return log_prob

    def entropy(self) -> Tensor:
        """Returns the entropy, [...]."""
        return self.entropies().sum(-1)

    def entropies(self) -> Tensor:
        """Returns the entropy of every dimension, [..., actions]."""
        return self.log_std + 0.5 * (1 + LOG_2PI)


@dataclass
class TruncatedNormal:
    """A diagonal Gaussian distribution restricted to [low, high] in every dimension; mean and std [..., actions]."""

    mean: Tensor
    std: Tensor
    low: float
    high: float

    def noise(self, source: Source) -> Tensor:
        """Draws the noise that `sample` takes."""
        return source.uniform(*self.mean.shape)

    def sample(self, noise: Tensor) -> Tensor:
        """Returns an action [..., actions], by inversion of the distribution function."""
        below, above = self._standardised_bounds()
        p_below = torch.special.ndtr(below)
        p_above = torch.special.ndtr(above)
        p = p_below + noise * (p_above - p_below)
        action: Tensor = self.mean + self.std * torch.special.ndtri(p)
        return action.clamp(self.low, self.high)

    def log_density(self, action: Tensor) -> Tensor:
        """Returns the log-density in each dimension, [..., actions]; -inf outside of [low, high].

        log N(x; mean, std) - log(Phi(above) - Phi(below))    with the standardised bounds below and above
        """
        z = (action - self.mean) / self.std
        log_std = torch.log(self.std)
        log_normal = -0.5 * z * z - log_std - 0.5 * LOG_2PI
        is_inside = (action >= self.low) & (action <= self.high)
        return torch.where(is_inside, log_normal - self._log_mass(), float("-inf"))

    def log_prob(self, action: Tensor) -> Tensor:
        """Returns the log-probability of an action, [...]."""
        return self.log_density(action).sum(-1)

    def _standardised_bounds(self) -> tuple[Tensor, Tensor]:
        below = (self.low - self.mean) / self.std
        above = (self.high - self.mean) / self.std
        return below, above

    def _log_mass(self) -> Tensor:
        """Returns log(Phi(above) - Phi(below)).

        If both bounds are positive, they are mirrored to the lower tail: floats near 0 are more precise than near 1.
        """
        below, above = self._standardised_bounds()
        is_upper_tail = below > 0
        lower = torch.where(is_upper_tail, -above, below)
        upper = torch.where(is_upper_tail, -below, above)
        log_upper: Tensor = torch.special.log_ndtr(upper)
        ratio = torch.exp(torch.special.log_ndtr(lower) - log_upper)
        return log_upper + torch.log1p(-ratio)


@dataclass
class SquashedNormal:
    """A diagonal Gaussian distribution squashed by tanh into (-1, 1) (arXiv 1812.05905, appendix C).

    mean and log_std of the Gaussian are [..., actions].
    """

    mean: Tensor
    log_std: Tensor

    def noise(self, source: Source) -> Tensor:
        """Draws the noise that `sample` takes."""
        return source.normal(*self.mean.shape)

    def sample(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Returns an action [..., actions] and its log-probability [...].

        The log-probability is computed from the unsquashed sample, so it stays precise where tanh saturates.
        """
        drawn: tuple[Tensor, Tensor] = _SquashedSample.apply(self.mean, self.log_std, noise)  # type: ignore[no-untyped-call]
        return drawn

    def entropy_estimate(self, source: Source) -> Tensor:
        """Returns -log p of a sample, [...]: an estimate of the entropy, which has no closed form."""
        _, log_prob = self.sample(self.noise(source))
        return -log_prob

    def sample_parts(self, noise: Tensor, sizes: list[int]) -> tuple[Tensor, Tensor]:
        """Returns an action [..., actions], and the log-probability of each group of its dimensions, [..., groups].

        sizes: number of dimensions of each group.
        """
        means = self.mean.split(sizes, -1)
        log_stds = self.log_std.split(sizes, -1)
        noises = noise.split(sizes, -1)
        actions = []
        log_probs = []
        for mean, log_std, group_noise in zip(means, log_stds, noises, strict=True):
            action, log_prob = SquashedNormal(mean, log_std).sample(group_noise)
            actions.append(action)
            log_probs.append(log_prob)
        return torch.cat(actions, -1), torch.stack(log_probs, -1)

    def mode(self) -> Tensor:
        """Returns the squashed mean, [..., actions]."""
        return torch.tanh(self.mean)

    def log_prob(self, action: Tensor) -> Tensor:
        """Returns the log-probability of a given action, [...].

        At -1 and 1 the log-probability is undefined; such entries are replaced by the nearest float inside (-1, 1).
        Raises ValueError for an action of another size, such as a mixed action, which holds choices too.
        """
        if action.shape[-1] != self.mean.shape[-1]:
            raise ValueError(f"an action of size {action.shape[-1]} for a distribution of size {self.mean.shape[-1]}")
        largest_inside = 1 - torch.finfo(action.dtype).eps / 2
        inside = action.clamp(-largest_inside, largest_inside)
        u = torch.atanh(inside)
        gaussian = Normal(self.mean, self.log_std)
        return gaussian.log_prob(u) - tanh_log_det(u)


@dataclass
class Deterministic:
    """A single action, [..., actions]. Its entropy and log-probabilities are taken to be 0."""

    action: Tensor

    def noise(self, source: Source) -> Tensor:
        """Returns the noise that `sample` takes. No numbers are drawn."""
        return torch.zeros_like(self.action)

    def sample(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the action [..., actions] and 0 [...]."""
        return self.action, self.log_prob(self.action)

    def mode(self) -> Tensor:
        """Returns the action, [..., actions]."""
        return self.action

    def log_prob(self, action: Tensor) -> Tensor:
        """Returns 0, [...]."""
        return torch.zeros_like(action[..., 0])


@dataclass
class Categorical:
    """A categorical distribution; logits [..., choices]."""

    logits: Tensor

    def noise(self, source: Source) -> Tensor:
        """Draws the noise that `sample` takes."""
        return source.uniform(*self.logits.shape)

    def sample(self, noise: Tensor) -> Tensor:
        """Returns a choice [...], by the Gumbel-max trick."""
        exponential = -torch.log(noise.clamp(min=1e-20))
        gumbel = -torch.log(exponential)
        return (self.logits + gumbel).argmax(-1)

    def mode(self) -> Tensor:
        """Returns the most likely choice, [...]."""
        return self.logits.argmax(-1)

    def log_prob(self, action: Tensor) -> Tensor:
        """Returns the log-probability of a choice, [...]."""
        log_p = self.logits.log_softmax(-1)
        column = action.long().unsqueeze(-1)
        return log_p.gather(-1, column).squeeze(-1)

    def entropy(self) -> Tensor:
        """Returns the entropy, [...]. Choices with logit -inf contribute 0."""
        log_p = self.logits.log_softmax(-1)
        lowest = torch.finfo(log_p.dtype).min
        finite_log_p = log_p.clamp(min=lowest)
        return -(log_p.exp() * finite_log_p).sum(-1)

    def entropy_estimate(self, source: Source) -> Tensor:
        """Returns the entropy, [...]. No numbers are drawn."""
        return self.entropy()


@dataclass
class Independent:
    """The joint distribution of several independent discrete decisions."""

    decisions: Categorical  # logits [..., decisions, choices]

    def noise(self, source: Source) -> Tensor:
        """Draws the noise that `sample` takes."""
        return self.decisions.noise(source)

    def sample(self, noise: Tensor) -> Tensor:
        """Returns a choice for every decision, [..., decisions]."""
        return self.decisions.sample(noise)

    def mode(self) -> Tensor:
        """Returns the most likely choices, [..., decisions]."""
        return self.decisions.mode()

    def log_prob(self, action: Tensor) -> Tensor:
        """Returns the joint log-probability of the choices, [...]."""
        return self.decisions.log_prob(action).sum(-1)

    def entropy(self) -> Tensor:
        """Returns the joint entropy, the sum over all decisions; [...]."""
        return self.decisions.entropy().sum(-1)


@dataclass
class Joint:
    """The joint distribution of independent discrete and continuous decisions.

    An action is a vector [..., decisions + actions]: the choices, then the continuous values.
    """

    discrete: Independent  # logits [..., decisions, choices]
    continuous: Normal  # mean [..., actions]

    def noise(self, source: Source) -> Tensor:
        """Draws the noise that `sample` takes."""
        discrete = self.discrete.noise(source).flatten(-2)
        continuous = self.continuous.noise(source)
        return torch.cat([discrete, continuous], -1)

    def sample(self, noise: Tensor) -> Tensor:
        """Returns an action, [..., decisions + actions]."""
        num_actions = self.continuous.mean.shape[-1]
        discrete_noise = noise[..., :-num_actions].reshape(self.discrete.decisions.logits.shape)
        continuous_noise = noise[..., -num_actions:]
        choices = self.discrete.sample(discrete_noise)
        values = self.continuous.sample(continuous_noise)
        return torch.cat([choices, values], -1)

    def mode(self) -> Tensor:
        """Returns the most likely action, [..., decisions + actions]."""
        return torch.cat([self.discrete.mode(), self.continuous.mode()], -1)

    def log_prob(self, action: Tensor) -> Tensor:
        """Returns the joint log-probability of an action, [...]."""
        num_decisions = self.discrete.decisions.logits.shape[-2]
        discrete = self.discrete.log_prob(action[..., :num_decisions])
        continuous = self.continuous.log_prob(action[..., num_decisions:])
        return discrete + continuous

    def entropy(self) -> Tensor:
        """Returns the joint entropy, [...]."""
        return self.discrete.entropy() + self.continuous.entropy()

    def entropies(self) -> Tensor:
        """Returns the entropy of every entry of the action, [..., decisions + actions]."""
        return torch.cat([self.discrete.decisions.entropy(), self.continuous.entropies()], -1)


class WithEntropy(Protocol):
    """A distribution whose entropy has a closed form."""

    def noise(self, source: Source) -> Tensor: ...
    def sample(self, noise: Tensor) -> Tensor: ...
    def mode(self) -> Tensor: ...
    def log_prob(self, action: Tensor) -> Tensor: ...
    def entropy(self) -> Tensor: ...


Distribution = WithEntropy | SquashedNormal
"""A stochastic policy of one observation or of a batch."""


def masked(scores: Tensor, mask: Tensor) -> Tensor:
    """Returns scores [..., choices] with -inf where the mask [..., choices] is 0.

    A mask that forbids every choice is ignored: some environments return such a mask after the end of an episode.
    """
    legal = mask.bool()
    any_legal = legal.any(-1, keepdim=True)
    return scores.masked_fill(~legal & any_legal, float("-inf"))
