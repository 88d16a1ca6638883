"""Bayesian posteriors in closed form, of means and of linear regressions."""

import torch
from torch import Tensor


def beta_moments(alpha: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the mean and the standard deviation of Beta(alpha, beta), elementwise."""
    total = alpha + beta
    mean = alpha / total
    std = (alpha * beta / (total + 1)).sqrt() / total
    return mean, std


def normal_mean(
    counts: Tensor,
    totals: Tensor,
    prior_mean: float,
    prior_std: float,
    noise_std: float,
) -> tuple[Tensor, Tensor]:
    """Returns the posterior mean and standard deviation of an unknown mean with a normal prior, elementwise.

        precision = 1 / prior_std^2 + n / noise_std^2
        mean = (prior_mean / prior_std^2 + total / noise_std^2) / precision

    counts: numbers n of observed samples. totals: their sums (Gelman et al., Bayesian Data Analysis, eq. 2.12).
    """
    prior_variance = prior_std**2
    noise_variance = noise_std**2
    precision = 1 / prior_variance + counts / noise_variance
    mean = (prior_mean / prior_variance + totals / noise_variance) / precision
    std = precision.rsqrt()
    return mean, std


def normal_inverse_gamma(
    xx: Tensor,
    xy: Tensor,
    yy: Tensor,
    count: Tensor,
    ridge: float,
    a0: float,
    b0: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns the posterior (mean, precision, a, b) of Bayesian linear regression y = w'x + noise.

    The variance of the noise is unknown. Prior: w ~ N(0, variance / ridge), variance ~ IG(a0, b0). Posterior (Bishop,
    exercise 3.12): w ~ N(mean, variance L^-1), variance ~ IG(a, b) with

        L = xx + ridge I              precision [..., d, d]
        mean = L^-1 xy                [..., d]
        a = a0 + n / 2                [...]
        b = b0 + (yy - mean' L mean) / 2    [...]

    Sufficient statistics: xx [..., d, d] sum of x x', xy [..., d], yy [...], count n [...].
    """
    identity = torch.eye(xx.shape[-1], dtype=xx.dtype, device=xx.device)
    precision = xx + ridge * identity
    cholesky = torch.linalg.cholesky(precision)
    mean = torch.cholesky_solve(xy.unsqueeze(-1), cholesky).squeeze(-1)
    explained = (mean * xy).sum(-1)  # equals mean' L mean, because L mean = xy
    residual = (yy - explained).clamp(min=0)
    a = a0 + count / 2
    b = b0 + 0.5 * residual
    return mean, precision, a, b


def normal_inverse_gamma_draw(
    mean: Tensor,
    precision: Tensor,
    b: Tensor,
    gamma_noise: Tensor,
    normal_noise: Tensor,
) -> Tensor:
    """Returns weights [..., d] drawn from the posterior that `normal_inverse_gamma` returns.

    gamma_noise [...] is a sample of Gamma(a, 1), normal_noise z [..., d] standard normal. With L = C C', the covariance
    of C'^-1 z is L^-1.
    """
    noise_std = (b / gamma_noise).sqrt().unsqueeze(-1)
    upper = torch.linalg.cholesky(precision).mT
    z = normal_noise.unsqueeze(-1)
    correlated: Tensor = torch.linalg.solve_triangular(upper, z, upper=True).squeeze(-1)
    return mean + noise_std * correlated


def normal_kl(
    mean: Tensor,
    std: Tensor,
    prior_std: float,
) -> Tensor:
    """Returns KL(N(mean, std^2) || N(0, prior_std^2)), summed over all entries (Kingma and Welling 2014, app. B)."""
    variance_ratio = (std / prior_std) ** 2
    squared_mean = (mean / prior_std) ** 2
    kl = variance_ratio + squared_mean - 1 - variance_ratio.log()
    return 0.5 * kl.sum()
