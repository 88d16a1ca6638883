"""Action distributions that take network outputs as parameters. `sample` takes its noise as an argument, because
kernels must not draw random numbers.

A distribution is a dataclass of tensors, other distributions and constants. `to_tensors` names its tensors, so that
rollouts and replay can store it, and `from_tensors` makes it of them again.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from rlrun.functional.choices import one_hot

LOG_2PI = math.log(2 * math.pi)
LOG_2 = math.log(2)

D = TypeVar("D")


class Source(Protocol):
    """A source of random numbers, such as a named stream."""

    def normal(self, *shape: int) -> Tensor: ...
    def uniform(self, *shape: int) -> Tensor: ...
    def gamma(self, shape: Tensor) -> Tensor: ...


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
class Beta:
    """Independent beta distributions over [low, high]; alpha and beta [..., actions], both positive."""

    alpha: Tensor
    beta: Tensor
    low: float
    high: float

    def noise(self, source: Source) -> Tensor:
        """Draws the noise that `sample` takes: Gamma(alpha, 1) and Gamma(beta, 1), [..., 2 * actions]."""
        return source.gamma(torch.cat([self.alpha, self.beta], -1))

    def sample(self, noise: Tensor) -> Tensor:
        """Returns an action inside of (low, high), [..., actions]. No gradient flows to alpha and beta.

        x / (x + y) has the distribution Beta(alpha, beta) if x ~ Gamma(alpha, 1) and y ~ Gamma(beta, 1).
        """
        x, y = noise.chunk(2, -1)
        eps = torch.finfo(noise.dtype).eps
        fraction = (x / (x + y)).clamp(eps, 1 - eps)
        return self.low + (self.high - self.low) * fraction

    def mode(self) -> Tensor:
        """Returns the most likely action, [..., actions]; the mean where alpha and beta are both at most 1."""
        above_low = (self.alpha - 1).clamp(min=0)
        above_high = (self.beta - 1).clamp(min=0)
        mean = self.alpha / (self.alpha + self.beta)
        has_peak = above_low + above_high > 0
        fraction = torch.where(has_peak, above_low / (above_low + above_high), mean)
        return self.low + (self.high - self.low) * fraction

    def log_prob(self, action: Tensor) -> Tensor:
        """Returns the log-probability of an action, [...]; -inf outside of [low, high].

        (alpha - 1) log x + (beta - 1) log(1 - x) - log B(alpha, beta) - log(high - low)    with x in [0, 1]
        """
        width = self.high - self.low
        x = (action - self.low) / width
        is_inside = (x >= 0) & (x <= 1)
        inside = x.clamp(0, 1)
        powers = torch.xlogy(self.alpha - 1, inside) + torch.special.xlog1py(self.beta - 1, -inside)
        log_density = powers - self.log_normaliser() - math.log(width)
        return torch.where(is_inside, log_density, float("-inf")).sum(-1)

    def entropy(self) -> Tensor:
        """Returns the entropy, [...]."""
        alpha, beta = self.alpha, self.beta
        total = alpha + beta
        expected_log = (alpha - 1) * alpha.digamma() + (beta - 1) * beta.digamma() - (total - 2) * total.digamma()
        entropy = self.log_normaliser() - expected_log + math.log(self.high - self.low)
        return entropy.sum(-1)

    def log_normaliser(self) -> Tensor:
        """Returns log B(alpha, beta) of every dimension, [..., actions]."""
        return self.alpha.lgamma() + self.beta.lgamma() - (self.alpha + self.beta).lgamma()


@dataclass
class Mixture:
    """A mixture of continuous distributions. Its entropy has no closed form."""

    logits: Tensor  # of the weights, [..., components]
    components: "Normal | TruncatedNormal | Beta"  # tensors [..., components, actions]

    def noise(self, source: Source) -> Tensor:
        """Draws the noise that `sample` takes: for the choice and for the action of every component."""
        choice = source.uniform(*self.logits.shape)
        return torch.cat([choice.unsqueeze(-1), self.components.noise(source)], -1)

    def sample(self, noise: Tensor) -> Tensor:
        """Returns an action, [..., actions]: that of a component drawn by its weight."""
        component = Categorical(self.logits).sample(noise[..., 0])
        actions = self.components.sample(noise[..., 1:])
        return actions.take_along_dim(component[..., None, None], -2).squeeze(-2)

    def log_prob(self, action: Tensor) -> Tensor:
        """Returns the log-probability of an action, [...]."""
        log_weight = self.logits.log_softmax(-1)
        log_prob = self.components.log_prob(action.unsqueeze(-2))
        return (log_weight + log_prob).logsumexp(-1)


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
        return self.entropies().sum(-1)

    def entropies(self) -> Tensor:
        """Returns the entropy of every decision, [..., decisions]."""
        return self.decisions.entropy()


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
        return torch.cat([self.discrete.entropies(), self.continuous.entropies()], -1)


class WithEntropy(Protocol):
    """A distribution whose entropy has a closed form."""

    def noise(self, source: Source) -> Tensor: ...
    def sample(self, noise: Tensor) -> Tensor: ...
    def mode(self) -> Tensor: ...
    def log_prob(self, action: Tensor) -> Tensor: ...
    def entropy(self) -> Tensor: ...


Distribution = WithEntropy | SquashedNormal
"""A stochastic policy of one observation or of a batch."""


def straight_through(logits: Tensor, gumbel: Tensor) -> Tensor:
    """Returns one-hot samples [..., choices], exactly, with the gradient of the probabilities p: z + p - sg(p).

    logits [..., choices]. gumbel: Gumbel(0, 1) noise of this shape. arXiv 1308.3432.
    """
    return _with_gradient_of(logits.softmax(-1), logits + gumbel)


def straight_through_gumbel(logits: Tensor, gumbel: Tensor, temperature: Tensor | float) -> Tensor:
    """Returns one-hot samples [..., choices], exactly, with the gradient of a Gumbel-softmax sample y: z + y - sg(y).

    y = softmax((log p + gumbel) / temperature), and z is its largest entry. arXiv 1611.01144.
    """
    perturbed = logits + gumbel
    return _with_gradient_of((perturbed / temperature).softmax(-1), perturbed)


def _with_gradient_of(soft: Tensor, scores: Tensor) -> Tensor:
    """Returns the one-hot choices of the largest scores, with the gradient of `soft`."""
    hard = one_hot(scores.argmax(-1), scores.shape[-1])
    return hard + (soft - soft.detach())


def to_tensors(dist: object, prefix: str = "dist.") -> dict[str, Tensor]:
    """Returns the tensors of a distribution by dotted names: `dist.mean` and `dist.log_std` of a `Normal`.

    Those of distributions inside of it are named by both fields: `dist.continuous.mean` of a `Joint`. Raises TypeError
    for a distribution that is no dataclass.
    """
    tensors: dict[str, Tensor] = {}
    for name, value in _fields(dist):
        if isinstance(value, Tensor):
            tensors[prefix + name] = value
        elif is_dataclass(value):
            tensors |= to_tensors(value, f"{prefix}{name}.")
    return tensors


def from_tensors(like: D, tensors: Mapping[str, Tensor], prefix: str = "dist.") -> D:
    """Returns a distribution with these tensors, which have the names that `to_tensors` gives; others are ignored.

    like: a distribution of the same kind, of which only the constants are read.
    """
    values: dict[str, object] = {}
    for name, value in _fields(like):
        if isinstance(value, Tensor):
            values[name] = tensors[prefix + name]
        elif is_dataclass(value):
            values[name] = from_tensors(value, tensors, f"{prefix}{name}.")
    restored: D = replace(like, **values)  # type: ignore[type-var]
    return restored


def _fields(dist: object) -> Iterator[tuple[str, object]]:
    if not is_dataclass(dist):
        kind = type(dist).__name__
        raise TypeError(f"{kind} cannot be stored: write it as a @dataclass of tensors, distributions and constants")
    for field in fields(dist):
        yield field.name, getattr(dist, field.name)


def masked(scores: Tensor, mask: Tensor) -> Tensor:
    """Returns scores [..., choices] with -inf where the mask [..., choices] is 0.

    A mask that forbids every choice is ignored: some environments return such a mask after the end of an episode.
    """
    legal = mask.bool()
    any_legal = legal.any(-1, keepdim=True)
    return scores.masked_fill(~legal & any_legal, float("-inf"))
