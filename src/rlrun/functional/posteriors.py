"""Conjugate posteriors: what is known of a mean or a linear function after some data, in closed form."""

import torch
from torch import Tensor


def beta_moments(alpha: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation of Beta(alpha, beta), elementwise."""
    total = alpha + beta
    return alpha / total, (alpha * beta / (total + 1)).sqrt() / total


def normal_mean(
    counts: Tensor, totals: Tensor, prior_mean: float, prior_std: float, noise_std: float
) -> tuple[Tensor, Tensor]:
    """Mean and deviation of an unknown mean with a normal prior, after `counts` draws of sum `totals`, elementwise.

    precision = 1 / prior_std^2 + n / noise_std^2; mean = (prior_mean / prior_std^2 + total / noise_std^2) / precision
    (Gelman et al., Bayesian Data Analysis, eq. 2.12).
    """
    precision = 1 / prior_std**2 + counts / noise_std**2
    return (prior_mean / prior_std**2 + totals / noise_std**2) / precision, precision.rsqrt()


def normal_inverse_gamma(
    xx: Tensor, xy: Tensor, yy: Tensor, count: Tensor, ridge: float, a0: float, b0: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Bayesian linear regression y = w'x + noise with unknown noise variance, from its sufficient statistics.

    xx [..., d, d] sum of x x', xy [..., d], yy [...], count [...]. Prior: w ~ N(0, variance / ridge), variance ~
    IG(a0, b0). Returns w's mean [..., d], the precision L [..., d, d], with which w's covariance is variance * L^-1,
    a [...] and b [...]: L = xx + ridge I, mean = L^-1 xy, a = a0 + n / 2, b = b0 + (yy - mean' L mean) / 2
    (Bishop, exercise 3.12).
    """
    precision = xx + ridge * torch.eye(xx.shape[-1], dtype=xx.dtype, device=xx.device)
    mean = torch.cholesky_solve(xy.unsqueeze(-1), torch.linalg.cholesky(precision)).squeeze(-1)
    explained = (mean * xy).sum(-1)  # mean' L mean, for L mean = xy
    return mean, precision, a0 + count / 2, b0 + 0.5 * (yy - explained).clamp(min=0)


def normal_inverse_gamma_draw(
    mean: Tensor, precision: Tensor, b: Tensor, gamma_noise: Tensor, normal_noise: Tensor
) -> Tensor:
    """Weights [..., d] drawn from that posterior; gamma_noise [...] of Gamma(a, 1), normal_noise [..., d]."""
    std = (b / gamma_noise).sqrt().unsqueeze(-1)
    # L = C C', so C'^-1 z has covariance L^-1
    upper = torch.linalg.cholesky(precision).mT
    return mean + std * torch.linalg.solve_triangular(upper, normal_noise.unsqueeze(-1), upper=True).squeeze(-1)


def normal_kl(mean: Tensor, std: Tensor, prior_std: float) -> Tensor:
    """KL(N(mean, std^2) || N(0, prior_std^2)), summed over all entries (Kingma and Welling 2014, appendix B)."""
    ratio = (std / prior_std) ** 2
    return 0.5 * (ratio + (mean / prior_std) ** 2 - 1 - ratio.log()).sum()
