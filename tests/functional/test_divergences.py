"""Divergences, compared with torch.distributions and with samples; distances of a trust region, by hand."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch import distributions as reference

from rlrun.core.random import Stream
from rlrun.functional.distributions import (
    Beta,
    Categorical,
    Deterministic,
    Independent,
    Joint,
    Mixture,
    Normal,
    SquashedNormal,
    TruncatedNormal,
    from_tensors,
    to_tensors,
)
from rlrun.functional.divergences import distances, kl, kl_estimate

INF = float("inf")


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def normals(*shape: int) -> tuple[Normal, Normal]:
    return Normal(draw(*shape), 0.3 * draw(*shape, seed=1)), Normal(draw(*shape, seed=2), 0.3 * draw(*shape, seed=3))


def squashed(actions: int = 2) -> tuple[SquashedNormal, SquashedNormal]:
    p, q = normals(5, actions)
    return SquashedNormal(p.mean, p.log_std), SquashedNormal(q.mean, q.log_std)


def categoricals(*shape: int) -> tuple[Categorical, Categorical]:
    """Two distributions of which the last choice is masked."""
    p, q = draw(*shape), draw(*shape, seed=1)
    p[..., -1] = q[..., -1] = -INF
    return Categorical(p), Categorical(q)


def independents() -> tuple[Independent, Independent]:
    p, q = categoricals(5, 2, 4)
    return Independent(p), Independent(q)


def joints() -> tuple[Joint, Joint]:
    discrete, continuous = independents(), normals(5, 3)
    return Joint(discrete[0], continuous[0]), Joint(discrete[1], continuous[1])


def betas(actions: int = 2) -> tuple[Beta, Beta]:
    alpha, beta = 1 + draw(2, 5, actions).exp(), 1 + draw(2, 5, actions, seed=1).exp()
    return Beta(alpha[0], beta[0], -1.0, 3.0), Beta(alpha[1], beta[1], -1.0, 3.0)


def truncated() -> tuple[TruncatedNormal, TruncatedNormal]:
    p, q = normals(5, 2)
    return TruncatedNormal(p.mean, p.log_std.exp(), -1.0, 1.0), TruncatedNormal(q.mean, q.log_std.exp(), -1.0, 1.0)


def mixtures() -> tuple[Mixture, Mixture]:
    p, q = normals(5, 3, 2)
    return Mixture(draw(5, 3), p), Mixture(draw(5, 3, seed=1), q)


PAIRS = {
    "normal": normals(5, 3),
    "squashed": squashed(),
    "categorical": categoricals(5, 4),
    "independent": independents(),
    "joint": joints(),
    "beta": betas(),
}
SAMPLED = {"truncated": truncated(), "mixture": mixtures()}


def torch_normal(dist: Any) -> Any:
    return reference.Independent(reference.Normal(dist.mean, dist.log_std.exp()), 1)


def torch_categorical(dist: Categorical) -> Any:
    return reference.Categorical(logits=dist.logits)


def torch_kl(p: Any, q: Any) -> Tensor:
    match p:
        case Normal():
            return reference.kl_divergence(torch_normal(p), torch_normal(q))
        case SquashedNormal():
            tanh = reference.TanhTransform()
            one, other = (reference.TransformedDistribution(torch_normal(dist), tanh) for dist in (p, q))
            return reference.kl_divergence(one, other)
        case Categorical():
            return reference.kl_divergence(torch_categorical(p), torch_categorical(q))
        case Independent():
            return torch_kl(p.decisions, q.decisions).sum(-1)
        case Joint():
            return torch_kl(p.discrete, q.discrete) + torch_kl(p.continuous, q.continuous)
    one, other = (reference.Beta(dist.alpha, dist.beta) for dist in (p, q))
    return reference.kl_divergence(one, other).sum(-1)


@pytest.mark.parametrize("kind", PAIRS)
def test_kl_equals_torch_distributions(kind: str) -> None:
    p, q = PAIRS[kind]
    assert kl(p, q).shape == (5,)
    torch.testing.assert_close(kl(p, q), torch_kl(p, q), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(kl(q, p), torch_kl(q, p), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(kl(p, p), torch.zeros(5, dtype=torch.float64), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", PAIRS)
def test_kl_is_within_3_standard_errors_of_samples(kind: str) -> None:
    p, q = PAIRS[kind]
    stream, log_ratios = Stream(0, "test"), []
    for _ in range(1000):
        x = p.sample(p.noise(stream).double())
        if isinstance(x, tuple):
            x = x[0]
        log_ratios.append(p.log_prob(x) - q.log_prob(x))
    log_ratio = torch.stack(log_ratios)
    error = log_ratio.std(0) / math.sqrt(len(log_ratio))
    assert ((log_ratio.mean(0) - kl(p, q)).abs() < 3 * error).all()


@pytest.mark.parametrize("kind", SAMPLED)
def test_kl_estimate_is_within_3_standard_errors_of_the_integral(kind: str) -> None:
    p, q = SAMPLED[kind]
    axis = torch.linspace(-1, 1, 401, dtype=torch.float64)
    if kind == "mixture":
        axis = torch.linspace(-9, 9, 401, dtype=torch.float64)
    grid = torch.cartesian_prod(axis, axis).unsqueeze(1)  # [points, 1, actions]
    log_p, log_q = p.log_prob(grid), q.log_prob(grid)
    integrand = (log_p.exp() * (log_p - log_q)).unflatten(0, (len(axis), len(axis)))
    exact = torch.trapezoid(torch.trapezoid(integrand, axis, dim=0), axis, dim=0)
    stream = Stream(0, "test")
    estimates = torch.stack([kl_estimate(p, q, noises(p, stream, 100)) for _ in range(20)])
    error = estimates.std(0) / math.sqrt(len(estimates))
    assert ((estimates.mean(0) - exact).abs() < 3 * error).all()
    assert torch.equal(kl_estimate(p, p, noises(p, stream, 4)), torch.zeros(5, dtype=torch.float64))


def noises(dist: Any, stream: Stream, samples: int) -> Tensor:
    return torch.stack([dist.noise(stream).double() for _ in range(samples)])


def test_kl_of_categoricals_ignores_choices_of_probability_0() -> None:
    p, q = Categorical(torch.tensor([0.0, -INF, 0.0])), Categorical(torch.tensor([0.0, 0.0, -INF]))
    assert kl(p, Categorical(torch.zeros(3))).item() == pytest.approx(math.log(1.5))
    assert kl(p, q).item() == INF


def test_kl_of_masked_categoricals_has_finite_gradients() -> None:
    p, logits = Categorical(torch.tensor([0.3, -INF, 0.0])), torch.tensor([0.1, -INF, 0.5], requires_grad=True)
    (grad,) = torch.autograd.grad(kl(p, Categorical(logits)), logits)
    expected = logits.detach().softmax(-1) - p.logits.softmax(-1)
    torch.testing.assert_close(grad, expected)


@pytest.mark.parametrize(
    ("p", "q", "line"),
    [
        (Normal(draw(1), draw(1)), Categorical(draw(1)), "of Normal and Categorical: both must be of one kind"),
        (Normal(draw(1), draw(1)), SquashedNormal(draw(1), draw(1)), "of Normal and SquashedNormal: both must be"),
        (Deterministic(draw(1)), Deterministic(draw(1)), "no closed form of the KL divergence of Deterministic"),
        (SAMPLED["mixture"][0], SAMPLED["mixture"][1], "no closed form of the KL divergence of Mixture"),
        (Beta(draw(1), draw(1), 0.0, 1.0), Beta(draw(1), draw(1), 0.0, 2.0), "two Beta distributions over different"),
    ],
)
def test_kl_refuses_unlike_distributions_and_kinds_without_a_closed_form(p: Any, q: Any, line: str) -> None:
    with pytest.raises(ValueError, match=line):
        kl(p, q)


def test_distance_of_categoricals_is_that_of_normalised_logits() -> None:
    p = Categorical(torch.tensor([[3.0, 3.0, -INF], [0.0, 0.0, -INF]]))
    q = Categorical(torch.tensor([[-2.0, -2.0, -INF], [0.0, math.log(3.0), -INF]]))
    change = [math.log(0.5) - math.log(0.25), math.log(0.5) - math.log(0.75)]
    found = distances(p, q, [])
    assert found.shape == (2, 1)
    assert found.flatten().tolist() == pytest.approx([0.0, change[0] ** 2 + change[1] ** 2])


def test_distance_of_normals_is_the_symmetric_divergence() -> None:
    p = Normal(torch.tensor([[0.0, 1.0]]), torch.tensor([[0.0, 0.0]]))
    q = Normal(torch.tensor([[2.0, 1.0]]), torch.tensor([[0.0, math.log(2.0)]]))
    # means: 2 * (2^2 / 2); standard deviations 1 and 2: 1/2 (1/4 + 4) - 1
    assert distances(p, q, [2]).tolist() == [[pytest.approx(4 + 0.5 * 4.25 - 1)]]


def test_distance_of_deterministic_actions_is_squared() -> None:
    p, q = Deterministic(torch.tensor([[1.0, 0.0]])), Deterministic(torch.tensor([[0.0, 3.0]]))
    assert distances(p, q, [2]).tolist() == [[10.0]]
    assert distances(p, q, [1, 1]).tolist() == [[1.0, 9.0]]


def test_distances_are_one_number_for_every_leaf() -> None:
    p, q = joints()
    found = distances(p, q, [3])
    assert found.shape == (5, 3)
    for leaf in range(2):
        one, other = (Categorical(dist.discrete.decisions.logits[:, leaf]) for dist in (p, q))
        assert torch.equal(found[:, leaf], distances(one, other, [])[:, 0])
    assert torch.equal(found[:, 2], kl(p.continuous, q.continuous) + kl(q.continuous, p.continuous))


def test_distances_of_continuous_leaves_are_those_of_their_dimensions() -> None:
    pairs: list[tuple[Any, Any]] = [normals(5, 3), squashed(3), betas(3)]
    for p, q in pairs:
        found = distances(p, q, [2, 1])
        assert found.shape == (5, 2)
        for leaf, dimensions in enumerate((slice(0, 2), slice(2, 3))):
            one, other = (part(dist, dimensions) for dist in (p, q))
            torch.testing.assert_close(found[:, leaf], kl(one, other) + kl(other, one))
        torch.testing.assert_close(found.sum(-1, keepdim=True), distances(p, q, [3]))


def part(dist: Any, dimensions: slice) -> Any:
    """Returns the distribution of some dimensions of an action."""
    return from_tensors(dist, {name: tensor[..., dimensions] for name, tensor in to_tensors(dist).items()})
