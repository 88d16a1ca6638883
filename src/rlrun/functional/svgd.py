"""Stein variational gradient descent (Liu and Wang 2016, arXiv 1608.04471): particles follow a gradient and repel each
other."""

import math

from torch import Tensor


def squared_distances(x: Tensor) -> Tensor:
    """Returns |x_i - x_j|^2 of all pairs; x [n, dim] -> [n, n]. From differences, so that near particles keep their
    digits."""
    difference = x.unsqueeze(1) - x
    return difference.square().sum(-1)


def median_bandwidth(distances: Tensor, floor: float = 1e-8) -> Tensor:
    """Returns h^2 = median(|x_i - x_j|^2) / (2 log(n + 1)) over all pairs (arXiv 1608.04471, sec. 5; twice their h).

    distances: [n, n], squared. Of an even number the mean of the two in the middle; never below `floor`.
    """
    ordered = distances.flatten().sort().values
    count = len(ordered)
    lower = ordered[(count - 1) // 2]
    upper = ordered[count // 2]
    median = (lower + upper) / 2
    n = len(distances)
    bandwidth = 0.5 * median / math.log(n + 1)
    return bandwidth.clamp(min=floor)


def rbf(x: Tensor, bandwidth: Tensor | float) -> tuple[Tensor, Tensor]:
    """Returns k_ij = exp(-|x_i - x_j|^2 / 2 h^2) [n, n], and sum_j d k_ij / d x_j [n, dim]; bandwidth is h^2."""
    exponent = -squared_distances(x) / (2 * bandwidth)
    kernel = exponent.exp()
    row_sums = kernel.sum(1, keepdim=True)
    gradient = (x * row_sums - kernel @ x) / bandwidth
    return kernel, gradient


def svgd_direction(
    x: Tensor,
    score: Tensor,
    temperature: float,
    bandwidth: Tensor | float,
) -> Tensor:
    """Returns phi_i = 1/n sum_j (k_ij score_j / T + d k_ij / d x_j), an ascent direction (arXiv 1704.02399, eq. 10).

    x, score: [n, dim], the particles and the gradient of the objective; at a high temperature repulsion dominates.
    """
    kernel, repulsion = rbf(x, bandwidth)
    attraction = kernel @ score / temperature
    return (attraction + repulsion) / len(x)
