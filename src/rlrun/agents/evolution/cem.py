"""Cross-entropy method (Rubinstein 1999; with noise added to the deviation: Szita and Lorincz 2006).

A Gaussian over policy parameters is fitted to the best of its own samples, again and again.
"""

from typing import Any

import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from rlrun.config.schema import NonNegativeFloat, PositiveFloat, PositiveFraction, PositiveInt, config
from rlrun.core.agent import Agent, kernel, policy
from rlrun.networks.choices import legal
from rlrun.networks.heads import Head
from rlrun.networks.stacked import Stacked
from rlrun.registry import register
from rlrun.types import Batch, Context, Metrics


@register("algo", "cem")
class CEM(Agent):
    actions = (Box, Discrete)
    needs_bounds = True

    @config
    class Config:
        population: PositiveInt
        elite_fraction: PositiveFraction
        initial_std: PositiveFloat
        extra_std: NonNegativeFloat
        extra_std_updates: PositiveInt

    mean: Tensor
    std: Tensor

    def __init__(self, cfg, spec, parts):
        super().__init__(cfg, spec, parts)
        self.discrete = isinstance(spec.action, Discrete)
        outputs = int(spec.action.n) if self.discrete else spec.action.shape[0]
        self.policy = Stacked(Head(parts.torso(members=1), outputs, members=1))
        self.register_buffer("mean", torch.zeros(self.policy.size))
        self.register_buffer("std", torch.full((self.policy.size,), cfg.initial_std))
        self.noise = parts.stream("population")

    @policy
    def act(self, obs: Any, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        out = self.policy(obs, self.mean[None] if params is None else params)
        return (legal(out, obs).argmax(-1) if self.discrete else torch.tanh(out)), {}

    def ask(self) -> Tensor:
        """Parameter vectors to try, [population, P]."""
        return self.mean + self.std * self.noise.normal(self.cfg.population, self.policy.size)

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        """params [population, P] and their fitness [population]."""
        extra = self.cfg.extra_std * max(0.0, 1 - ctx.updates / self.cfg.extra_std_updates)
        return self.fit(batch["params"], batch["fitness"], torch.full_like(self.std, extra))

    @kernel
    def fit(self, params: Tensor, fitness: Tensor, extra_std: Tensor) -> Metrics:
        elites = fitness.topk(max(1, round(self.cfg.elite_fraction * self.cfg.population))).indices
        self.mean.copy_(params[elites].mean(0))
        self.std.copy_((params[elites].var(0, correction=0) + extra_std**2).sqrt())
        return {"fitness_mean": fitness.mean(), "fitness_best": fitness.max(), "std": self.std.mean()}
