"""Covariance matrix adaptation evolution strategy (Hansen, tutorial: arXiv 1604.00772; equation numbers are its own).

Active: bad samples take variance away. The separable form adapts a diagonal only, faster (Ros and Hansen 2008).
"""

import math
from typing import Any, Literal

import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from rlrun.agents.evolution.covariance import Full, Separable
from rlrun.agents.evolution.policy import StackedPolicy
from rlrun.config.schema import PositiveFloat, Size, config
from rlrun.core.agent import Agent, kernel
from rlrun.core.parts import Parts
from rlrun.errors import ConfigError
from rlrun.registry import register
from rlrun.types import Batch, Context, Metrics, Spec

LARGE = 2000  # parameters whose covariance matrix is still worth its memory


class Rates:
    """Weights and learning rates for P parameters and a population (table 1)."""

    def __init__(self, size: int, population: int, separable: bool):
        n, mu = size, population // 2
        raw = torch.log(torch.tensor((population + 1) / 2)) - torch.arange(1, population + 1).log()  # (49)
        good, bad = raw[:mu], raw[mu:]
        self.mu = mu
        self.mu_eff = mu_eff = float(good.sum() ** 2 / (good**2).sum())
        mu_eff_bad = float(bad.sum() ** 2 / (bad**2).sum())
        faster = (n + 2) / 3 if separable else 1.0
        self.c_1 = c_1 = min(0.5, faster * 2 / ((n + 1.3) ** 2 + mu_eff))  # (57)
        rank_mu = 2 * (mu_eff - 2 + 1 / mu_eff) / ((n + 2) ** 2 + mu_eff)
        self.c_mu = c_mu = min(1 - c_1, faster * rank_mu)  # (58)
        negative = min(1 + c_1 / c_mu, 1 + 2 * mu_eff_bad / (mu_eff + 2), (1 - c_1 - c_mu) / (n * c_mu))  # (50-52)
        self.weights = torch.where(raw >= 0, raw / good.sum(), raw * negative / raw.clamp(max=0).sum().abs())  # (53)
        self.c_sigma = (mu_eff + 2) / (n + mu_eff + 5)  # (55)
        self.d_sigma = 1 + 2 * max(0.0, math.sqrt((mu_eff - 1) / (n + 1)) - 1) + self.c_sigma
        self.c_c = (4 + mu_eff / n) / (n + 4 + 2 * mu_eff / n)  # (56)
        self.expected = math.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n**2))  # E ||N(0, I)||


@register("algo", "cma_es")
class CMAES(Agent):
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
            raise ConfigError(f"algo.population={cfg.population}: must be at least 4, of which the better half counts")
        self.policy = StackedPolicy(spec, parts)
        separable = cfg.covariance == "separable" or (cfg.covariance == "auto" and self.policy.size > LARGE)
        self.register_buffer("mean", self.policy.initial())
        self.register_buffer("sigma", torch.tensor(cfg.sigma0))
        self.register_buffer("path_sigma", torch.zeros_like(self.mean))
        self.register_buffer("path_c", torch.zeros_like(self.mean))
        self.register_buffer("best", self.mean.clone())
        self.register_buffer("best_fitness", torch.tensor(-torch.inf))
        self.covariance = (Separable if separable else Full)(self.mean)
        self.rates = Rates(self.policy.size, cfg.population, separable)
        self.register_buffer("weights", self.rates.weights.to(self.mean), persistent=False)
        # decomposing so rarely costs no more than the rest (section B.2)
        self.period = max(1, int(1 / (10 * self.policy.size * (self.rates.c_1 + self.rates.c_mu))))
        self.noise = parts.stream("population")

    @torch.no_grad()
    def act(self, obs: Any, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        own = self.mean if self.cfg.report == "mean" else self.best
        if params is None:
            params = own[None]
        return self.policy(obs, params), {}

    def ask(self) -> Tensor:
        """Parameter vectors to try, [population, P] (38-40)."""
        return self.mean + self.sigma * self.covariance.spread(self.noise.normal(self.cfg.population, self.policy.size))

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        """params [population, P] and their fitness [population]."""
        warm = math.sqrt(1 - (1 - self.rates.c_sigma) ** (2 * (ctx.updates + 2)))
        metrics = self.tell(batch["params"], batch["fitness"], torch.full_like(self.sigma, warm))
        if (ctx.updates + 1) % self.period == 0:
            self.covariance.decompose()
        return metrics

    @kernel
    def tell(self, params: Tensor, fitness: Tensor, warm: Tensor) -> Metrics:
        r, n = self.rates, len(self.mean)
        order = fitness.argsort(descending=True, stable=True)
        params, fitness = params[order], fitness[order]
        self.best.copy_(torch.where(fitness[0] > self.best_fitness, params[0], self.best))
        self.best_fitness.copy_(fitness[0].maximum(self.best_fitness))
        y = (params - self.mean) / self.sigma
        y_w = self.weights[: r.mu] @ y[: r.mu]  # (41)
        self.mean.add_(self.sigma * y_w)  # (42)
        pull = math.sqrt(r.c_sigma * (2 - r.c_sigma) * r.mu_eff)
        self.path_sigma.mul_(1 - r.c_sigma).add_(pull * self.covariance.whiten(y_w))  # (43)
        length = torch.linalg.vector_norm(self.path_sigma)
        self.sigma.mul_(torch.exp(r.c_sigma / r.d_sigma * (length / r.expected - 1)))  # (44)
        steady = (length / warm < (1.4 + 2 / (n + 1)) * r.expected).to(y)
        self.path_c.mul_(1 - r.c_c).add_(steady * math.sqrt(r.c_c * (2 - r.c_c) * r.mu_eff) * y_w)  # (45)
        lengths = self.covariance.whiten(y).square().sum(1)
        weights = torch.where(self.weights < 0, self.weights * n / (lengths + 1e-8), self.weights)  # (46)
        lost = (1 - steady) * r.c_c * (2 - r.c_c)
        keep = 1 + r.c_1 * lost - r.c_1 - r.c_mu * self.weights.sum()
        rows = torch.cat([self.path_c[None], y])
        self.covariance.add(keep, rows, torch.cat([torch.full_like(weights[:1], r.c_1), r.c_mu * weights]))  # (47)
        return {"fitness_mean": fitness.mean(), "fitness_best": fitness[0], "sigma": self.sigma.clone()}
