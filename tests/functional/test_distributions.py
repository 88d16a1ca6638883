"""Distributions, compared with torch.distributions in float64, and samples, compared with their probabilities."""

import math

import pytest
import torch
from torch import Tensor
from torch import distributions as reference

from rlrun.core.random import Stream
from rlrun.functional.distributions import (
    Beta,
    Categorical,
    Independent,
    Joint,
    Mixture,
    Normal,
    SquashedNormal,
    TruncatedNormal,
    masked,
    tanh_log_det,
)


def slow_log_prob(mean: Tensor, log_std: Tensor, u: Tensor) -> Tensor:
    """Of tanh(u) under the squashed Gaussian, in float64, with log(1 - tanh(u)^2) = 2 log sech(u)."""
    mean, log_std, u = mean.double(), log_std.double(), u.double()
    log_sech = math.log(2) - u.abs() - torch.log1p(torch.exp(-2 * u.abs()))
    return (reference.Normal(mean, log_std.exp()).log_prob(u) - 2 * log_sech).sum(-1)


def test_normal_equals_torch_distributions() -> None:
    mean, log_std, action = torch.randn(3, 7, 4, dtype=torch.float64)
    ours, theirs = Normal(mean, log_std), reference.Independent(reference.Normal(mean, log_std.exp()), 1)
    torch.testing.assert_close(ours.log_prob(action), theirs.log_prob(action))
    torch.testing.assert_close(ours.entropy(), theirs.entropy())
    assert torch.equal(ours.mode(), mean)


def test_normal_sample_is_a_function_of_the_noise() -> None:
    dist = Normal(torch.tensor([[1.0, -1.0]]), torch.tensor([[0.0, math.log(2)]]))
    assert dist.sample(torch.tensor([[0.5, 0.5]])).tolist() == [[1.5, 0.0]]


def test_normal_plus_adds_mean_and_variance_of_the_noise() -> None:
    wide = Normal(torch.tensor([1.0, -2.0]), torch.tensor([0.3, 1.2]).log()).plus(torch.tensor(0.5), torch.tensor(0.16))
    assert wide.mean.tolist() == [1.5, -1.5]
    assert wide.log_std.exp().tolist() == pytest.approx([0.5, 1.6**0.5])


@pytest.mark.parametrize(("mean", "std"), [(0.0, 2.0), (0.95, 0.2), (-1.0, 0.01), (10.0, 0.5), (-30.0, 1.0)])
def test_truncated_normal_density_is_that_of_the_normal_over_its_mass(mean: float, std: float) -> None:
    grid = torch.linspace(-1, 1, 20001, dtype=torch.float64)
    log_normal = reference.Normal(mean, std).log_prob(grid)
    log_mass = log_normal.max() + torch.trapezoid((log_normal - log_normal.max()).exp(), grid).log()
    dist = TruncatedNormal(torch.tensor([mean]), torch.tensor([std]), -1.0, 1.0)
    found = dist.log_prob(grid.float().unsqueeze(1)).double()
    torch.testing.assert_close(found, log_normal - log_mass, rtol=1e-4, atol=2e-3)
    assert torch.trapezoid(found.exp(), grid).item() == pytest.approx(1, abs=1e-3)


def test_truncated_normal_log_prob_sums_dimensions_and_is_minus_infinity_outside() -> None:
    dist = TruncatedNormal(torch.tensor([0.0, 0.5]), torch.tensor([1.0, 2.0]), -1.0, 1.0)
    action = torch.tensor([[0.3, -0.2], [0.3, 1.01], [-1.5, 0.0]])
    assert torch.equal(dist.log_prob(action), dist.log_density(action).sum(-1))
    assert dist.log_prob(action).isfinite().tolist() == [True, False, False]


@pytest.mark.parametrize(("mean", "std"), [(0.0, 2.0), (0.95, 0.2), (-1.0, 0.01)])
def test_truncated_normal_samples_have_its_distribution(mean: float, std: float) -> None:
    n = 4000
    dist = TruncatedNormal(torch.full((n, 1), mean), torch.full((n, 1), std), -1.0, 1.0)
    sample = dist.sample(dist.noise(Stream(0, "test"))).flatten()
    assert sample.min() >= -1 and sample.max() <= 1
    below, above = reference.Normal(mean, std).cdf(torch.tensor([-1.0, 1.0]))
    cdf = (reference.Normal(mean, std).cdf(sample.sort().values) - below) / (above - below)
    largest_gap = (cdf - torch.arange(n) / n).abs().max()
    assert largest_gap < 1.63 / math.sqrt(n)  # Kolmogorov-Smirnov, 1 %


def test_squashed_normal_equals_torch_distributions() -> None:
    mean, log_std = torch.randn(5, 3, dtype=torch.float64), torch.randn(5, 3, dtype=torch.float64) * 0.3 - 1
    dist = SquashedNormal(mean, log_std)
    action, _ = dist.sample(torch.randn(5, 3, dtype=torch.float64))
    theirs = reference.TransformedDistribution(reference.Normal(mean, log_std.exp()), reference.TanhTransform())
    torch.testing.assert_close(dist.log_prob(action), theirs.log_prob(action).sum(-1))


def test_squashed_normal_log_prob_of_a_sample_equals_that_of_its_action() -> None:
    mean, log_std, noise = torch.randn(3, 64, 2, dtype=torch.float64)
    dist = SquashedNormal(mean, log_std - 1)
    action, log_prob = dist.sample(noise)
    torch.testing.assert_close(log_prob, dist.log_prob(action))


@pytest.mark.parametrize("u", [0.0, 3.0, -6.0, 9.0, -12.0, 20.0, 60.0])
def test_squashed_normal_log_prob_is_exact_at_saturation(u: float) -> None:
    mean, log_std = torch.tensor([[u - 0.5]]), torch.tensor([[0.0]])
    action, log_prob = SquashedNormal(mean, log_std).sample(torch.tensor([[0.5]]))
    assert log_prob.item() == pytest.approx(slow_log_prob(mean, log_std, torch.tensor([[u]])).item(), rel=1e-6)
    assert abs(action.item()) <= 1


def test_squashed_normal_gradients_are_finite_at_saturation() -> None:
    mean = torch.tensor([[30.0]], requires_grad=True)
    _, log_prob = SquashedNormal(mean, torch.zeros(1, 1)).sample(torch.zeros(1, 1))
    (grad,) = torch.autograd.grad(log_prob.sum(), mean)
    assert grad.item() == pytest.approx(2.0)  # d/du of -log(1 - tanh(u)^2)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_squashed_normal_log_prob_of_an_action_rounded_to_the_bound(sign: float) -> None:
    inside = sign * torch.nextafter(torch.tensor(1.0), torch.tensor(0.0))
    mean, log_std = torch.tensor([[sign * 8.0]]), torch.tensor([[0.0]])
    exact = slow_log_prob(mean, log_std, torch.atanh(inside.double()).view(1, 1))
    value = SquashedNormal(mean, log_std).log_prob(torch.tensor([[sign]]))
    assert value.item() == pytest.approx(exact.item(), rel=1e-4)
    assert torch.isfinite(value)


def test_tanh_log_det_is_exact_in_float32() -> None:
    u = torch.linspace(-80, 80, 321)[:, None]
    exact = 2 * (math.log(2) - u.double().abs() - torch.log1p(torch.exp(-2 * u.double().abs())))
    torch.testing.assert_close(tanh_log_det(u).double(), exact.sum(-1), rtol=1e-5, atol=1e-5)


def test_squashed_normal_density_integrates_to_1() -> None:
    edges = torch.linspace(-1, 1, 200_001, dtype=torch.float64)
    action = ((edges[1:] + edges[:-1]) / 2)[:, None]
    density = SquashedNormal(torch.tensor([[0.7]]).double(), torch.tensor([[-0.5]]).double()).log_prob(action).exp()
    assert (density.sum() * (edges[1] - edges[0])).item() == pytest.approx(1.0, abs=1e-4)


def test_categorical_equals_torch_distributions() -> None:
    logits, action = torch.randn(6, 5), torch.randint(5, (6,))
    ours, theirs = Categorical(logits), reference.Categorical(logits=logits)
    torch.testing.assert_close(ours.log_prob(action), theirs.log_prob(action))
    torch.testing.assert_close(ours.entropy(), theirs.entropy())
    assert torch.equal(ours.mode(), logits.argmax(-1))


def test_categorical_sample_frequencies_match_probabilities() -> None:
    p = torch.tensor([0.1, 0.2, 0.3, 0.4])
    draws = 40_000
    dist = Categorical(p.log().expand(draws, 4))
    counts = torch.bincount(dist.sample(dist.noise(Stream(0, "test"))), minlength=4)
    chi_squared = ((counts - draws * p) ** 2 / (draws * p)).sum()
    assert chi_squared < 16.3  # chi-square, 3 degrees of freedom: exceeded once in a thousand


def test_categorical_sample_takes_the_smallest_and_largest_uniforms() -> None:
    dist = Categorical(torch.zeros(2, 3))
    noise = torch.tensor([[0.0, 0.5, 0.5], [0.5, 1 - 2**-24, 0.5]])
    assert dist.sample(noise).tolist()[1] == 1
    assert dist.sample(noise)[0] != 0


def test_categorical_never_samples_choices_of_probability_0() -> None:
    dist = Categorical(torch.tensor([0.0, float("-inf"), 0.0]).expand(1000, 3))
    assert not (dist.sample(dist.noise(Stream(0, "test"))) == 1).any()


def test_categorical_entropy_ignores_choices_of_probability_0() -> None:
    logits = torch.tensor([[0.0, float("-inf"), 0.0]], requires_grad=True)
    entropy = Categorical(logits).entropy()
    assert entropy.item() == pytest.approx(math.log(2))
    (grad,) = torch.autograd.grad(entropy.sum(), logits)
    assert torch.isfinite(grad).all()


def test_independent_adds_log_probs_and_entropies_of_its_decisions() -> None:
    """Two decisions, of 1/4 against 3/4 and of three equal choices: P = 3/4 * 1/3."""
    inf = float("inf")
    logits = torch.tensor([[[0.0, math.log(3), -inf], [0.0, 0.0, 0.0]]])
    dist = Independent(Categorical(logits))
    assert dist.log_prob(torch.tensor([[1, 2]])).tolist() == pytest.approx([math.log(1 / 4)])
    entropy = math.log(4) - 0.75 * math.log(3) + math.log(3)
    assert dist.entropy().tolist() == pytest.approx([entropy])
    assert dist.mode().tolist()[0][0] == 1


def test_masked_actions_have_probability_0() -> None:
    dist = Categorical(masked(torch.tensor([[math.log(2), 9.0, 0.0, 9.0]]), torch.tensor([[1, 0, 1, 0]])))
    probabilities = [dist.log_prob(torch.tensor([action])).exp().item() for action in range(4)]
    assert probabilities == pytest.approx([2 / 3, 0, 1 / 3, 0])
    assert dist.entropy().item() == pytest.approx(math.log(3) - 2 / 3 * math.log(2))


def test_masked_distribution_with_one_legal_action_has_finite_gradients() -> None:
    logits = torch.tensor([[3.0, -1.0, 0.5]], requires_grad=True)
    dist = Categorical(masked(logits, torch.tensor([[False, True, False]])))
    assert dist.log_prob(torch.tensor([1])).item() == 0
    assert dist.entropy().item() == 0
    assert (dist.sample(torch.rand(1, 3)) == 1).all() and (dist.mode() == 1).all()
    (grad,) = torch.autograd.grad(dist.log_prob(torch.tensor([1])).sum() + dist.entropy().sum(), logits)
    assert grad.tolist() == [[0, 0, 0]]


def test_masked_distribution_has_the_gradients_of_the_distribution_over_legal_actions() -> None:
    full = torch.tensor([[0.3, 5.0, -0.7]], requires_grad=True)
    small = full.detach()[:, [0, 2]].requires_grad_()
    ours, theirs = Categorical(masked(full, torch.tensor([[1, 0, 1]]))), Categorical(small)
    (grad,) = torch.autograd.grad((ours.log_prob(torch.tensor([2])) + ours.entropy()).sum(), full)
    (expected,) = torch.autograd.grad((theirs.log_prob(torch.tensor([1])) + theirs.entropy()).sum(), small)
    torch.testing.assert_close(grad[:, [0, 2]], expected)
    assert grad[0, 1] == 0


def test_masked_ignores_a_mask_that_forbids_everything() -> None:
    scores = torch.tensor([[1.0, 2.0], [1.0, 2.0]])
    assert masked(scores, torch.tensor([[0, 0], [1, 0]])).tolist() == [[1, 2], [1, float("-inf")]]


def joint(rows: int = 5) -> Joint:
    """Returns the distribution of two decisions, the second with 2 of 3 choices, and two continuous values."""
    logits = torch.randn(rows, 2, 3)
    logits[:, 1, 2] = float("-inf")
    return Joint(Independent(Categorical(logits)), Normal(torch.randn(rows, 2), torch.randn(rows, 2)))


def test_joint_log_prob_and_entropy_are_sums_over_independent_parts() -> None:
    dist = joint()
    action = torch.cat([torch.tensor([[0.0, 1.0]]).expand(5, 2), torch.randn(5, 2)], 1)
    by_hand = dist.discrete.decisions.logits.log_softmax(-1)[:, [0, 1], [0, 1]].sum(-1)
    normal = torch.distributions.Normal(dist.continuous.mean, dist.continuous.log_std.exp())
    torch.testing.assert_close(dist.log_prob(action), by_hand + normal.log_prob(action[:, 2:]).sum(-1))
    entropies = torch.cat([dist.discrete.decisions.entropy(), normal.entropy()], 1)
    torch.testing.assert_close(dist.entropies(), entropies)
    torch.testing.assert_close(dist.entropy(), entropies.sum(-1))


def test_joint_samples_have_the_probabilities_and_moments_of_the_parts() -> None:
    dist = joint(1)
    logits = dist.discrete.decisions.logits.expand(20_000, 2, 3)
    many = Joint(
        Independent(Categorical(logits)),
        Normal(dist.continuous.mean.expand(20_000, 2), dist.continuous.log_std.expand(20_000, 2)),
    )
    action = many.sample(many.noise(Stream(0, "test")))
    assert action.shape == (20_000, 4)
    for part in range(2):
        found = torch.bincount(action[:, part].long(), minlength=3) / 20_000
        torch.testing.assert_close(found, logits[0, part].softmax(-1), atol=0.015, rtol=0)
    std = dist.continuous.log_std[0].exp()
    assert ((action[:, 2:].mean(0) - dist.continuous.mean[0]).abs() < 0.03 * std.clamp(min=1)).all()
    torch.testing.assert_close(action[:, 2:].std(0), std, rtol=0.03, atol=0)
    assert many.mode()[0].tolist() == [*logits[0].argmax(-1).tolist(), *dist.continuous.mean[0].tolist()]


def test_squashed_parts_are_sampled_as_the_whole() -> None:
    dist = SquashedNormal(torch.randn(5, 3), torch.randn(5, 3))
    noise = torch.randn(5, 3)
    action, log_prob = dist.sample(noise)
    parts, log_probs = dist.sample_parts(noise, [1, 2])
    torch.testing.assert_close(parts, action)
    torch.testing.assert_close(log_probs.sum(-1), log_prob)


def test_beta_equals_torch_distributions() -> None:
    alpha, beta = 0.5 + torch.rand(2, 7, 3, dtype=torch.float64) * 4
    ours = Beta(alpha, beta, -2.0, 3.0)
    stretched = reference.AffineTransform(torch.tensor(-2.0).double(), torch.tensor(5.0).double())
    theirs = reference.TransformedDistribution(reference.Beta(alpha, beta), stretched)
    action = ours.sample(ours.noise(Stream(0, "test")).double())
    torch.testing.assert_close(ours.log_prob(action), theirs.log_prob(action).sum(-1))
    entropy = reference.Beta(alpha, beta).entropy() + math.log(5)
    torch.testing.assert_close(ours.entropy(), entropy.sum(-1))


@pytest.mark.parametrize(("alpha", "beta"), [(2.0, 5.0), (1.0, 1.0), (8.0, 1.5)])
def test_beta_density_integrates_to_1_and_is_highest_at_the_mode(alpha: float, beta: float) -> None:
    grid = torch.linspace(-1, 3, 20001, dtype=torch.float64)
    dist = Beta(torch.tensor([alpha]).double(), torch.tensor([beta]).double(), -1.0, 3.0)
    log_prob = dist.log_prob(grid.unsqueeze(1))
    assert torch.trapezoid(log_prob.exp(), grid).item() == pytest.approx(1, abs=1e-3)
    assert dist.log_prob(dist.mode()).item() == pytest.approx(log_prob.max().item(), abs=1e-6)
    assert dist.log_prob(torch.tensor([[-1.1], [3.1]])).tolist() == [-math.inf, -math.inf]


def test_beta_mode_without_a_peak() -> None:
    alpha, beta = torch.tensor([[0.5, 2.0, 0.5], [2.0, 0.5, 1.0]])
    assert Beta(alpha, beta, 0.0, 3.0).mode().tolist() == [0.0, 3.0, 1.0]


@pytest.mark.parametrize(("alpha", "beta"), [(2.0, 5.0), (0.5, 0.5), (1.0, 3.0), (0.2, 0.3)])
def test_beta_samples_have_its_moments_and_stay_inside(alpha: float, beta: float) -> None:
    n = 4000
    dist = Beta(torch.full((n, 1), alpha), torch.full((n, 1), beta), -1.0, 3.0)
    fraction = (dist.sample(dist.noise(Stream(0, "test"))) + 1) / 4
    assert fraction.min() > 0 and fraction.max() < 1
    theirs = reference.Beta(torch.tensor(alpha), torch.tensor(beta))
    assert (fraction.mean() - theirs.mean).abs() < 3 * theirs.stddev / math.sqrt(n)
    assert fraction.var().item() == pytest.approx(theirs.variance.item(), rel=0.06)


def mixture() -> Mixture:
    """Weights 0.2 and 0.8 of N(-2, 0.5^2) and N(1, 1)."""
    return Mixture(torch.tensor([0.2, 0.8]).log(), Normal(torch.tensor([[-2.0], [1.0]]), torch.tensor([[-0.7], [0.0]])))


def test_mixture_equals_torch_distributions() -> None:
    logits, (mean, log_std) = torch.randn(7, 4, dtype=torch.float64), torch.randn(2, 7, 4, 3, dtype=torch.float64)
    ours, action = Mixture(logits, Normal(mean, log_std)), torch.randn(7, 3, dtype=torch.float64)
    components = reference.Independent(reference.Normal(mean, log_std.exp()), 1)
    theirs = reference.MixtureSameFamily(reference.Categorical(logits=logits), components)
    torch.testing.assert_close(ours.log_prob(action), theirs.log_prob(action))


def test_mixture_density_integrates_to_1() -> None:
    grid = torch.linspace(-8, 8, 20001)
    density = mixture().log_prob(grid.unsqueeze(1)).exp()
    assert torch.trapezoid(density, grid).item() == pytest.approx(1, abs=1e-3)


def test_mixture_samples_have_its_distribution() -> None:
    n, dist = 4000, mixture()
    logits = dist.logits.expand(n, 2)
    components = Normal(dist.components.mean.expand(n, 2, 1), dist.components.log_std.expand(n, 2, 1))  # type: ignore[union-attr]
    many = Mixture(logits, components)
    sample = many.sample(many.noise(Stream(0, "test"))).flatten().sort().values
    low, high = (reference.Normal(mean, std).cdf(sample) for mean, std in ((-2.0, math.exp(-0.7)), (1.0, 1.0)))
    largest_gap = (0.2 * low + 0.8 * high - torch.arange(n) / n).abs().max()
    assert largest_gap < 1.63 / math.sqrt(n)  # Kolmogorov-Smirnov, 1 %
