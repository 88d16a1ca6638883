"""Stein variational gradient descent: kernel, derivative, bandwidth, direction, and the distribution it finds."""

import math

import pytest
import torch

from rlrun.functional.svgd import median_bandwidth, rbf, squared_distances, svgd_direction


def test_svgd_of_two_particles_by_hand() -> None:
    """x = 0 and 2, h^2 = 2: k = exp(-4/4); d k(x_2, x_1) / d x_2 = -(2 - 0) / 2 k."""
    x, k = torch.tensor([[0.0], [2.0]]), math.exp(-1)
    kernel, repulsion = rbf(x, 2.0)
    torch.testing.assert_close(kernel, torch.tensor([[1, k], [k, 1]]))
    torch.testing.assert_close(repulsion, torch.tensor([[-k], [k]]))
    score = torch.tensor([[3.0], [5.0]])
    expected = torch.tensor([[(3 + 5 * k) / 10 - k], [(3 * k + 5) / 10 + k]]) / 2
    torch.testing.assert_close(svgd_direction(x, score, 10.0, 2.0), expected)


def test_rbf_gradient_equals_autograd() -> None:
    x = torch.randn(6, 3, dtype=torch.float64)
    other = x.clone().requires_grad_()
    for i in range(6):
        row = (-(x[i] - other).square().sum(-1) / (2 * 0.7)).exp()
        (slope,) = torch.autograd.grad(row.sum(), other)
        torch.testing.assert_close(rbf(x, 0.7)[1][i], slope.sum(0))


def test_svgd_repulsion_is_mutual() -> None:
    repulsion = rbf(torch.randn(7, 4, dtype=torch.float64), 1.3)[1]
    torch.testing.assert_close(repulsion.sum(0), torch.zeros(4, dtype=torch.float64))


def test_median_bandwidth_follows_the_median_distance() -> None:
    """0, 1, 3: squared distances 0 0 0 1 1 4 4 9 9, their median 1."""
    distances = squared_distances(torch.tensor([[0.0], [1.0], [3.0]]))
    assert distances.flatten().sort().values.tolist() == [0, 0, 0, 1, 1, 4, 4, 9, 9]
    assert median_bandwidth(distances).item() == pytest.approx(0.5 / math.log(4))
    pair = squared_distances(torch.tensor([[0.0], [2.0]]))  # 0 0 4 4: the mean of the two in the middle
    assert median_bandwidth(pair).item() == pytest.approx(0.5 * 2 / math.log(3))
    assert median_bandwidth(torch.zeros(3, 3)) == pytest.approx(1e-8)


def test_svgd_of_one_particle_is_gradient_over_temperature() -> None:
    x, score = torch.randn(1, 5), torch.randn(1, 5)
    bandwidth = median_bandwidth(squared_distances(x))
    torch.testing.assert_close(svgd_direction(x, score, 4.0, bandwidth), score / 4)


def test_svgd_particles_have_the_moments_of_the_target_distribution() -> None:
    """50 particles on the log density of N(2, 0.5^2)."""
    torch.manual_seed(0)
    x = torch.randn(50, 1, dtype=torch.float64)
    past = torch.zeros_like(x)
    for _ in range(5000):
        direction = svgd_direction(x, -(x - 2) / 0.25, 1.0, median_bandwidth(squared_distances(x)))
        past = 0.9 * past + 0.1 * direction**2
        x = x + 0.01 * direction / (past.sqrt() + 1e-6)
    assert x.mean().item() == pytest.approx(2.0, abs=0.02)
    assert x.std(correction=0).item() == pytest.approx(0.48, abs=0.05)
