"""Covariance matrix adaptation evolution strategy (CMA-ES).

Equation numbers are those of Hansen's tutorial (arXiv 1604.00772). This is active CMA-ES: the worse half of the samples
has negative weights. The separable form adapts only the diagonal of the covariance matrix, with larger learning rates
(Ros and Hansen 2008).
"""

import math
from typing import Any, Literal

import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from rlrun.agents.evolution.covariance import FORMS
from rlrun.agents.evolution.policy import StackedPolicy
from rlrun.core.agent import Agent, kernel
from rlrun.core.parts import Parts
from rlrun.errors import ConfigError
from rlrun.settings import PositiveFloat, Size, config, register
from rlrun.types import Batch, Context, Metrics, Obs, Spec

LARGE = 2000  # number of parameters above which covariance=auto selects the separable form


class Rates:
    """Weights and learning rates for `size` parameters and a population (table 1)."""

    def __init__(self, size: int, population: int, separable: bool):
        n = size
        mu = population // 2
        middle = torch.tensor((population + 1) / 2)
        rank = torch.arange(1, population + 1)
        raw = torch.log(middle) - rank.log()  # (49)
        mu_eff = effective_samples(raw[:mu])
        mu_eff_negative = effective_samples(raw[mu:])

        faster = 1.0
        if separable:
            faster = (n + 2) / 3
        rank_one = faster * 2 / ((n + 1.3) ** 2 + mu_eff)
        c_1 = min(0.5, rank_one)  # (57)
        rank_mu = 2 * (mu_eff - 2 + 1 / mu_eff) / ((n + 2) ** 2 + mu_eff)
        c_mu = min(1 - c_1, faster * rank_mu)  # (58)

        alpha_mu = 1 + c_1 / c_mu  # (50)
        alpha_mu_eff = 1 + 2 * mu_eff_negative / (mu_eff + 2)  # (51)
        alpha_positive_definite = (1 - c_1 - c_mu) / (n * c_mu)  # (52)
        negative_sum = min(alpha_mu, alpha_mu_eff, alpha_positive_definite)
        positive = raw / raw[:mu].sum()
        negative = raw * negative_sum / raw.clamp(max=0).sum().abs()
        self.weights = torch.where(raw >= 0, positive, negative)  # (53)

        self.mu = mu
        self.mu_eff = mu_eff
        self.c_1 = c_1
        self.c_mu = c_mu
        self.c_sigma = (mu_eff + 2) / (n + mu_eff + 5)  # (55)
        excess = math.sqrt((mu_eff - 1) / (n + 1)) - 1
        self.d_sigma = 1 + 2 * max(0.0, excess) + self.c_sigma
        self.c_c = (4 + mu_eff / n) / (n + 4 + 2 * mu_eff / n)  # (56)
        self.expected = math.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n**2))  # E ||N(0, I)||


def effective_samples(weights: Tensor) -> float:
    """Returns the variance-effective selection mass of weights [n] (table 1)."""
    return float(weights.sum() ** 2 / (weights**2).sum())


@register("algo", "cma_es")
class CMAES(Agent):
    """CMA-ES over the weights of a deterministic policy."""

    actions = (Box, Discrete)

    @config
    class Config:
        population: Size
        sigma0: PositiveFloat
        covariance: Literal["auto", "full", "separable"]
        report: Literal["mean", "best"]

    cfg: Config

    mean: Tensor
    sigma: Tensor
    path_sigma: Tensor
    path_c: Tensor
    best: Tensor
    best_fitness: Tensor
    weights: Tensor
    covariance: Any

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        if cfg.population < 4:
            raise ConfigError(
                f"algo.population={cfg.population}: must be at least 4, because the better half sets the mean"
            )
        self.policy = StackedPolicy(spec, parts)
        form = cfg.covariance
        if form == "auto":
            form = "full"
            if self.policy.size > LARGE:
                form = "separable"
        self.register_buffer("mean", self.policy.initial())
        self.register_buffer("sigma", torch.tensor(cfg.sigma0))
        self.register_buffer("path_sigma", torch.zeros_like(self.mean))
        self.register_buffer("path_c", torch.zeros_like(self.mean))
        self.register_buffer("best", self.mean.clone())
        self.register_buffer("best_fitness", torch.tensor(-torch.inf))
        self.covariance = FORMS[form](self.mean)
        self.rates = Rates(self.policy.size, cfg.population, form == "separable")
        self.register_buffer("weights", self.rates.weights.to(self.mean), persistent=False)
        # decompose so rarely that it costs no more than the rest of the update (section B.2)
        period = 1 / (10 * self.policy.size * (self.rates.c_1 + self.rates.c_mu))
        self.period = max(1, int(period))
        self.noise = parts.stream("population")

    @torch.no_grad()
    def act(self, obs: Obs, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        if params is None:
            evaluated = self.best
            if self.cfg.report == "mean":
                evaluated = self.mean
            params = evaluated[None]
        return self.policy(obs, params), {}

    def ask(self) -> Tensor:
        """Returns a sampled population of parameter vectors, [population, P] (equations 38 to 40)."""
        z = self.noise.normal(self.cfg.population, self.policy.size)
        y = self.covariance.spread(z)
        return self.mean + self.sigma * y

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        """Updates the search distribution from params [population, P] and their fitness [population]."""
        generation = ctx.updates + 1
        correction = math.sqrt(1 - (1 - self.rates.c_sigma) ** (2 * (generation + 1)))
        correction_0d = torch.full_like(self.sigma, correction)
        metrics = self.tell(batch["params"], batch["fitness"], correction_0d)
        if generation % self.period == 0:
            self.covariance.decompose()
        return metrics

    @kernel
    def tell(self, params: Tensor, fitness: Tensor, correction: Tensor) -> Metrics:
        """Updates mean, step size sigma and covariance with one generation.

        correction: factor by which path_sigma is too short in early generations, because it starts at 0; 0-d.
        """
        rates = self.rates
        n = len(self.mean)
        order = fitness.argsort(descending=True, stable=True)
        params = params[order]
        fitness = fitness[order]
        is_better = fitness[0] > self.best_fitness
        self.best.copy_(torch.where(is_better, params[0], self.best))
        self.best_fitness.copy_(fitness[0].maximum(self.best_fitness))

        y = (params - self.mean) / self.sigma
        y_w = self.weights[: rates.mu] @ y[: rates.mu]  # (41)
        self.mean.add_(self.sigma * y_w)  # (42)

        c_sigma = rates.c_sigma
        scale = math.sqrt(c_sigma * (2 - c_sigma) * rates.mu_eff)
        self.path_sigma.mul_(1 - c_sigma)
        self.path_sigma.add_(scale * self.covariance.whiten(y_w))  # (43)
        length = torch.linalg.vector_norm(self.path_sigma)
        growth = c_sigma / rates.d_sigma * (length / rates.expected - 1)
        self.sigma.mul_(torch.exp(growth))  # (44)

        c_c = rates.c_c
        longest = (1.4 + 2 / (n + 1)) * rates.expected
        h_sigma = (length / correction < longest).to(y)
        scale = math.sqrt(c_c * (2 - c_c) * rates.mu_eff)
        self.path_c.mul_(1 - c_c)
        self.path_c.add_(h_sigma * scale * y_w)  # (45)

        lengths = self.covariance.whiten(y).square().sum(1)
        negative = self.weights * n / (lengths + 1e-8)
        weights = torch.where(self.weights < 0, negative, self.weights)  # (46)
        delta = (1 - h_sigma) * c_c * (2 - c_c)
        keep = 1 + rates.c_1 * delta - rates.c_1 - rates.c_mu * self.weights.sum()
        rank_one = torch.full_like(weights[:1], rates.c_1)
        rank_mu = rates.c_mu * weights
        rows = torch.cat([self.path_c[None], y])
        self.covariance.add(keep, rows, torch.cat([rank_one, rank_mu]))  # (47)
        return {"loss/fitness_mean": fitness.mean(), "loss/fitness_best": fitness[0], "loss/sigma": self.sigma.clone()}
