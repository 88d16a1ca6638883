"""Stein variational gradient descent (Liu and Wang 2016, arXiv 1608.04471): particles climb, and repel each other."""

import math

from torch import Tensor


def squared_distances(x: Tensor) -> Tensor:
    """|x_i - x_j|^2 of all pairs; x [n, dim] -> [n, n]. By differences, so that near particles keep their digits."""
    return (x.unsqueeze(1) - x).square().sum(-1)


def median_bandwidth(distances: Tensor, floor: float = 1e-8) -> Tensor:
    """h^2 = median(|x_i - x_j|^2) / (2 log(n + 1)) over all pairs i, j (arXiv 1608.04471, sec. 5; twice their h).

    distances: [n, n], squared. Of an even number the mean of the two in the middle; never below `floor`.
    """
    ordered = distances.flatten().sort().values
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    return (0.5 * middle / math.log(len(distances) + 1)).clamp(min=floor)


def rbf(x: Tensor, bandwidth: Tensor | float) -> tuple[Tensor, Tensor]:
    """k_ij = exp(-|x_i - x_j|^2 / 2 h^2) [n, n], and sum_j d k_ij / d x_j [n, dim]; bandwidth is h^2."""
    kernel = (-squared_distances(x) / (2 * bandwidth)).exp()
    return kernel, (x * kernel.sum(1, keepdim=True) - kernel @ x) / bandwidth


def svgd_direction(x: Tensor, score: Tensor, temperature: float, bandwidth: Tensor | float) -> Tensor:
    """phi_i = 1/n sum_j (k_ij score_j / T + d k_ij / d x_j), to be followed upwards (arXiv 1704.02399, eq. 10).

    x, score: [n, dim], what is sought and the gradient of its worth; a high temperature leaves repulsion alone.
    """
    kernel, repulsion = rbf(x, bandwidth)
    return (kernel @ score / temperature + repulsion) / len(x)
