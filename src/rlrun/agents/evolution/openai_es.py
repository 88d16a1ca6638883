"""Evolution strategies as a scalable alternative to reinforcement learning (Salimans et al. 2017, arXiv 1703.03864).

The gradient of the mean fitness under Gaussian noise, estimated from the population, for Adam. Without the paper's
virtual batch normalisation, and with weight decay apart from the gradient (AdamW).
"""

from typing import Any, Literal

import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor, nn

from rlrun.agents.evolution.policy import StackedPolicy, directions
from rlrun.config.schema import NonNegativeFloat, PositiveFloat, Size, config
from rlrun.core.agent import Agent, kernel
from rlrun.core.parts import Parts
from rlrun.core.state import Optim
from rlrun.registry import register
from rlrun.types import Batch, Context, Metrics, Spec


@register("algo", "openai_es")
class OpenAIES(Agent):
    actions = (Box, Discrete)

    @config
    class Config:
        population: Size
        std: PositiveFloat
        learning_rate: PositiveFloat
        weight_decay: NonNegativeFloat
        antithetic: bool
        orthogonal: bool
        shaping: Literal["ranks", "standardise", "none"]

    cfg: Config

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        self.policy = StackedPolicy(spec, parts)
        self.mean = nn.Parameter(self.policy.initial())
        self.optim = Optim([self.mean], cfg.learning_rate, weight_decay=cfg.weight_decay)
        self.noise = parts.stream("population")

    @torch.no_grad()
    def act(self, obs: Any, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        return self.policy(obs, self.mean[None] if params is None else params), {}

    @torch.no_grad()
    def ask(self) -> Tensor:
        """Parameter vectors to try, [population, P]."""
        cfg = self.cfg
        noise = directions(self.noise, cfg.population, self.policy.size, cfg.antithetic, cfg.orthogonal)
        return self.mean + cfg.std * noise

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        """params [population, P] and their fitness [population]."""
        return self.climb(batch["params"], batch["fitness"])

    @kernel
    @torch.no_grad()
    def climb(self, params: Tensor, fitness: Tensor) -> Metrics:
        noise = (params - self.mean) / self.cfg.std
        ascent = shaped(fitness, self.cfg.shaping) @ noise / (len(params) * self.cfg.std)
        norm = self.optim.apply(-ascent)
        return {"fitness_mean": fitness.mean(), "fitness_best": fitness.max(), "grad_norm": norm}


def shaped(fitness: Tensor, how: str) -> Tensor:
    """What a member counts, [population]. Ranks: from -1/2 for the worst to 1/2 for the best, equal ones alike."""
    if how == "none":
        return fitness
    if how == "ranks":
        below = (fitness[:, None] > fitness).sum(1) + (fitness[:, None] == fitness).sum(1) / 2 - 0.5
        return below / max(1, len(fitness) - 1) - 0.5
    return (fitness - fitness.mean()) / (fitness.std(correction=0) + 1e-8)
