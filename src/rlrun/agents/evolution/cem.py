"""Cross-entropy method (Rubinstein 1999; with noise added to the standard deviation: Szita and Lorincz 2006).

In every generation, a Gaussian over policy parameters is fitted to the best of its own samples. Extra variance
(`extra_std`), which decreases to 0, keeps the Gaussian from collapsing early; it is added when parameters are sampled,
not to the fitted covariance. With weights by rank and a covariance about the previous mean (arXiv 1810.01222, equations
1 and 2), no extra variance is needed: the covariance then includes the step of the mean, so it stays wide in the
direction in which the mean moves.
"""

from typing import Literal

import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from rlrun.agents.evolution.covariance import FORMS
from rlrun.agents.evolution.policy import StackedPolicy, directions
from rlrun.core.agent import Agent, kernel, policy
from rlrun.core.parts import Parts
from rlrun.errors import ConfigError
from rlrun.settings import NonNegativeFloat, PositiveFloat, PositiveFraction, PositiveInt, Size, config, register
from rlrun.types import Batch, Context, Metrics, Obs, Spec


@register("algo", "cem")
class CEM(Agent):
    """The cross-entropy method over the weights of a deterministic policy."""

    actions = (Box, Discrete)

    @config
    class Config:
        population: Size
        elite_fraction: PositiveFraction
        elite_weights: Literal["equal", "log"]
        covariance: Literal["separable", "full"]
        covariance_about: Literal["elites", "previous"]
        covariance_rate: PositiveFraction
        init_std: PositiveFloat
        extra_std: NonNegativeFloat
        extra_decay_time: PositiveInt
        antithetic: bool
        orthogonal: bool

    cfg: Config

    mean: Tensor
    weights: Tensor
    extra_var: Tensor

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        # 1e-9 keeps int() from cutting off a whole number: 100 * 0.29 is 28.999999999999996
        self.num_elites = int(cfg.population * cfg.elite_fraction + 1e-9)
        if self.num_elites == 0:
            least = f"1 / {cfg.population}"
            raise ConfigError(f"algo.elite_fraction={cfg.elite_fraction}: must be at least {least} for one elite")
        self.policy = StackedPolicy(spec, parts)
        self.register_buffer("mean", self.policy.initial())
        rank = torch.arange(1, self.num_elites + 1).to(self.mean)
        if cfg.elite_weights == "equal":
            raw = torch.ones_like(rank)
        else:
            raw = torch.log((1 + self.num_elites) / rank)
        self.register_buffer("weights", raw / raw.sum(), persistent=False)
        covariance = FORMS[cfg.covariance]
        self.covariance = covariance(self.mean, cfg.init_std**2)
        self.register_buffer("extra_var", torch.tensor(cfg.extra_std**2))
        self.noise = parts.stream("population")

    @policy
    def act(self, obs: Obs, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        if params is None:
            params = self.mean[None]
        return self.policy(obs, params), {}

    def ask(self) -> Tensor:
        """Returns a sampled population of parameter vectors, [population, P]."""
        cfg = self.cfg
        noise = directions(self.noise, cfg.population, self.policy.size, cfg.antithetic, cfg.orthogonal)
        return self.mean + self.covariance.spread(noise, self.extra_var)

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        """Fits the Gaussian to the elites of params [population, P], those with the highest fitness [population]."""
        generation = ctx.updates + 1
        remaining = max(0.0, 1 - generation / self.cfg.extra_decay_time)
        self.extra_var.fill_(self.cfg.extra_std**2 * remaining)
        metrics = self.fit(batch["params"], batch["fitness"])
        self.covariance.decompose()
        return metrics

    @kernel
    def fit(self, params: Tensor, fitness: Tensor) -> Metrics:
        best = fitness.topk(self.num_elites).indices  # in descending order
        elites = params[best]
        mean = self.weights @ elites
        centre = mean
        if self.cfg.covariance_about == "previous":
            centre = self.mean
        rate = self.cfg.covariance_rate
        self.covariance.add(1 - rate, elites - centre, rate * self.weights)
        self.mean.copy_(mean)
        std = self.covariance.variances().sqrt().mean()
        return {"loss/fitness_mean": fitness.mean(), "loss/fitness_best": fitness.max(), "loss/std": std}
