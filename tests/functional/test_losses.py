"""Losses against numbers worked out by hand."""

import pytest
import torch

from rlrun.functional.losses import clipped_surrogate, clipped_value_error, ensemble_mse, huber, weighted_mean


def test_a_row_of_weight_0_counts_nothing_and_of_weight_2_twice() -> None:
    x = torch.tensor([1.0, 100.0, 3.0, 4.0])
    assert weighted_mean(x, torch.tensor([1.0, 0.0, 1.0, 2.0])) == 12 / 4


def test_ensemble_mse_sums_members_and_averages_rows() -> None:
    q, target = torch.tensor([[1.0, 2.0], [3.0, 0.0]]), torch.tensor([1.0, 1.0])
    # member 0: 0, 1; member 1: 4, 1
    assert ensemble_mse(q, target, torch.ones(2)) == 0.5 * (0.5 + 2.5)
    assert ensemble_mse(q, target, torch.tensor([1.0, 0.0])) == 0.5 * (0 + 4) / 2


def test_a_member_has_the_gradient_it_would_have_alone() -> None:
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
def test_the_clipped_surrogate_is_pessimistic(ratio: float, advantage: float, expected: float) -> None:
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
def test_the_clipped_value_error_is_the_worse_one(value: float, expected: float) -> None:
    error = clipped_value_error(torch.tensor([value]), torch.zeros(1), torch.ones(1), 0.2)
    assert error.item() == pytest.approx(expected)


def test_an_unlimited_value_error_is_half_the_square() -> None:
    error = clipped_value_error(torch.tensor([3.0]), torch.tensor([-50.0]), torch.tensor([1.0]), float("inf"))
    assert error.item() == 2.0


def test_huber_is_a_parabola_that_goes_on_as_its_tangent() -> None:
    error = torch.tensor([0.0, 0.5, -0.5, 2.0, -3.0])
    assert huber(error, 1.0).tolist() == [0.0, 0.125, 0.125, 1.5, 2.5]
    assert huber(torch.tensor([4.0]), 2.0).item() == 2.0 * (4.0 - 1.0)
