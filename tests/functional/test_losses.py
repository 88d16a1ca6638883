"""Losses against numbers worked out by hand."""

import math

import pytest
import torch

from rlrun.functional.distributions import Categorical, Normal
from rlrun.functional.losses import (
    advantage_weight,
    clip_fraction,
    clipped_surrogate,
    clipped_value_error,
    cloning_error,
    ensemble_mse,
    expectile_weight,
    explained_variance,
    huber,
    kl_k1,
    kl_k3,
    masked_mean,
    standardise,
    weighted_mean,
)


def test_weighted_mean_masks_weight_0_and_doubles_weight_2() -> None:
    x = torch.tensor([1.0, 100.0, 3.0, 4.0])
    assert weighted_mean(x, torch.tensor([1.0, 0.0, 1.0, 2.0])) == 12 / 4


def test_average_of_rows_that_were_broadcast_is_refused() -> None:
    with pytest.raises(ValueError, match=r"x and weight must have the same shape, but have \[3, 3\] and \[3\]"):
        masked_mean(torch.zeros(3, 1) - torch.zeros(3), torch.ones(3))


def test_ensemble_mse_sums_members_and_averages_rows() -> None:
    q, target = torch.tensor([[1.0, 2.0], [3.0, 0.0]]), torch.tensor([1.0, 1.0])
    # member 0: 0, 1; member 1: 4, 1
    assert ensemble_mse(q, target, torch.ones(2)) == 0.5 * (0.5 + 2.5)
    assert ensemble_mse(q, target, torch.tensor([1.0, 0.0])) == 0.5 * (0 + 4) / 2


def test_ensemble_mse_gradient_of_a_member_equals_that_of_a_single_network() -> None:
    q = torch.randn(3, 4, requires_grad=True)
    target, weight = torch.randn(4), torch.rand(4)
    (together,) = torch.autograd.grad(ensemble_mse(q, target, weight), q)
    for i in range(3):
        (alone,) = torch.autograd.grad(ensemble_mse(q[i : i + 1], target, weight), q)
        torch.testing.assert_close(together[i], alone[i])


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected"),
    [
        (1.5, 1.0, 1.2),  # no more than the clipped gain
        (0.5, 1.0, 0.5),  # a loss counts whole
        (1.5, -1.0, -1.5),
        (0.5, -1.0, -0.8),
        (1.1, 2.0, 2.2),  # within the range nothing is clipped
    ],
)
def test_clipped_surrogate_takes_the_minimum(ratio: float, advantage: float, expected: float) -> None:
    value = clipped_surrogate(torch.tensor([ratio]), torch.tensor([advantage]), 0.2)
    assert value.item() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.1, 0.5 * 0.9**2),  # within the range: the plain error
        (0.9, 0.5 * 0.8**2),  # moved too far towards the target: as if clipped to 0.2
        (-0.9, 0.5 * 1.9**2),  # moved away: the plain error is worse
    ],
)
def test_clipped_value_error_takes_the_maximum(value: float, expected: float) -> None:
    error = clipped_value_error(torch.tensor([value]), torch.zeros(1), torch.ones(1), 0.2)
    assert error.item() == pytest.approx(expected)


def test_clipped_value_error_without_a_range_is_half_the_square() -> None:
    error = clipped_value_error(torch.tensor([3.0]), torch.tensor([-50.0]), torch.tensor([1.0]), float("inf"))
    assert error.item() == 2.0


def test_huber_is_quadratic_then_linear() -> None:
    error = torch.tensor([0.0, 0.5, -0.5, 2.0, -3.0])
    assert huber(error, 1.0).tolist() == [0.0, 0.125, 0.125, 1.5, 2.5]
    assert huber(torch.tensor([4.0]), 2.0).item() == 2.0 * (4.0 - 1.0)


def test_average_leaves_masked_rows_out_of_the_count() -> None:
    x, weight = torch.tensor([1.0, 100.0, 3.0]), torch.tensor([1.0, 0.0, 1.0])
    assert masked_mean(x, weight) == 2
    assert masked_mean(x, torch.zeros(3)) == 0


def test_standardise_ignores_masked_rows() -> None:
    x = torch.randn(50)
    weight = (torch.arange(50) % 3 > 0).float()
    spoiled = torch.where(weight > 0, x, torch.tensor(1e3))
    kept = x[weight > 0]
    expected = (kept - kept.mean()) / (kept.std() + 1e-8)
    torch.testing.assert_close(standardise(spoiled, weight)[weight > 0], expected)
    one = torch.tensor([0.0, 1.0, 0.0])
    assert standardise(torch.tensor([5.0, 7.0, 9.0]), one)[1] == 7, "one row has no standard deviation"


@pytest.mark.parametrize(
    ("ratio", "advantage", "gradient"),
    [(1.0, 2.0, 2.0), (1.3, 2.0, 0.0), (0.7, 2.0, 2.0), (0.7, -2.0, 0.0), (1.3, -2.0, -2.0)],
)
def test_clipped_surrogate_has_no_gradient_beyond_the_clip(ratio: float, advantage: float, gradient: float) -> None:
    x = torch.tensor([ratio], requires_grad=True)
    clipped_surrogate(x, torch.tensor([advantage]), 0.2).sum().backward()
    assert x.grad is not None and x.grad.item() == gradient


def test_explained_variance_bounds() -> None:
    target, weight = torch.tensor([1.0, 2.0, 6.0, 1e6]), torch.tensor([1.0, 1.0, 1.0, 0.0])  # variance 14 / 3
    assert explained_variance(target, target, weight) == 1
    assert explained_variance(torch.full((4,), 9.0), target, weight) == 0
    half = torch.tensor([0.0, 2.0, 4.0, 0.0])  # errors 1, 0, 2: variance 2 / 3
    assert explained_variance(half, target, weight).item() == pytest.approx(1 - 2 / 14)
    assert explained_variance(half, torch.ones(4), weight) == 0


def test_clip_fraction_counts_ratios_outside_of_the_range() -> None:
    assert clip_fraction(torch.tensor([0.7, 0.81, 1.0, 1.19, 1.5]), 0.2).tolist() == [1, 0, 0, 0, 1]


def test_kl_estimates_are_unbiased_and_k3_has_less_variance() -> None:
    old, new = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.4, 0.4, 0.2])
    log_ratio = (new / old).log()
    exact = -(old * log_ratio).sum().item()
    first, third = kl_k1(log_ratio), kl_k3(log_ratio)
    assert (old * first).sum().item() == pytest.approx(exact) and (old * third).sum().item() == pytest.approx(exact)
    assert (third >= 0).all() and (first < 0).any()
    assert (old * (third - exact) ** 2).sum() < (old * (first - exact) ** 2).sum()


@pytest.mark.parametrize("expectile", [0.5, 0.8, 0.1])
def test_error_with_expectile_weight_is_minimised_by_the_expectile(expectile: float) -> None:
    """Of U(0, 1) the expectile e has tau (1 - e)^2 = (1 - tau) e^2: e = 1 / (1 + sqrt((1 - tau) / tau))."""
    x = (torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000
    v = torch.zeros((), dtype=torch.float64, requires_grad=True)
    for _ in range(200):
        error = x - v
        loss = (expectile_weight(error, expectile) * error**2).mean()
        (grad,) = torch.autograd.grad(loss, v)
        v = (v - 0.5 * grad).detach().requires_grad_()
    assert float(v.detach()) == pytest.approx(1 / (1 + ((1 - expectile) / expectile) ** 0.5), abs=1e-6)


def test_expectile_weight_by_hand() -> None:
    assert expectile_weight(torch.tensor([2.0, -2.0, 0.0]), 0.75).tolist() == [0.75, 0.25, 0.75]


def test_advantage_weights_are_clipped_and_detached() -> None:
    advantage = torch.tensor([0.0, 2 * math.log(5.0), -2 * math.log(4.0), 1e4], requires_grad=True)
    share = advantage_weight(advantage, temperature=2.0, limit=100.0)
    torch.testing.assert_close(share, torch.tensor([1.0, 5.0, 0.25, 100.0]))
    assert not share.requires_grad


def test_cloning_error_is_negative_log_prob_or_squared_error() -> None:
    action = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    torch.testing.assert_close(cloning_error(torch.zeros(2, 2), action), torch.tensor([1.0, 4.0]))
    normal = Normal(torch.zeros(2, 2), torch.zeros(2, 2))
    nll = 0.5 * torch.tensor([1.0, 4.0]) + math.log(2 * math.pi)
    torch.testing.assert_close(cloning_error(normal, action), nll)
    choice = Categorical(torch.tensor([[0.0, math.log(3.0)]]))
    torch.testing.assert_close(cloning_error(choice, torch.tensor([1])), torch.tensor([math.log(4 / 3)]))
