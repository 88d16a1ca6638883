"""Stein variational gradient descent (SVGD; Liu and Wang 2016, arXiv 1608.04471): particles follow a gradient and repel
each other."""

import math

from torch import Tensor


def squared_distances(x: Tensor) -> Tensor:
    """Returns |x_i - x_j|^2 of all pairs; x [n, dim] -> [n, n].

    Computed from differences, because |x_i|^2 - 2 x_i x_j + |x_j|^2 is inaccurate for particles that are close.
    """
    difference = x.unsqueeze(1) - x
    return difference.square().sum(-1)


def median_bandwidth(distances: Tensor, floor: float = 1e-8) -> Tensor:
    """Returns the squared bandwidth h^2 = median(|x_i - x_j|^2) / (2 log(n + 1)), at least `floor`; 0-d.

    This is the median heuristic of arXiv 1608.04471, sec. 5, whose h is 2 h^2 here. distances [n, n]: |x_i - x_j|^2.
    The median of an even number of entries is the mean of the middle two.
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
    """Returns the kernel k_ij = exp(-|x_i - x_j|^2 / (2 h^2)), [n, n], and sum_j d k_ij / d x_j, [n, dim].

    `bandwidth` is h^2.
    """
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
    """Returns the ascent direction phi_i = 1/n sum_j (k_ij score_j / T + d k_ij / d x_j), [n, dim].

    Equation 10 of arXiv 1704.02399. x [n, dim]: the particles. score [n, dim]: gradient of the objective at each
    particle. At a high temperature T the repulsion d k_ij / d x_j dominates.
    """
    kernel, repulsion = rbf(x, bandwidth)
    attraction = kernel @ score / temperature
    return (attraction + repulsion) / len(x)
