"""Evolution strategies as a scalable alternative to reinforcement learning (Salimans et al. 2017, arXiv 1703.03864).

Adam ascends an estimate, from the population, of the gradient of the mean fitness under Gaussian parameter noise.
Unlike in the paper, there is no virtual batch normalisation, and weight decay is decoupled from the gradient (AdamW).
"""

from typing import Literal

import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor, nn

from rlrun.agents.evolution.policy import StackedPolicy, directions
from rlrun.core.agent import Agent, kernel
from rlrun.core.parts import Parts
from rlrun.core.state import Optim
from rlrun.settings import NonNegativeFloat, PositiveFloat, Size, config, register
from rlrun.types import Batch, Context, Metrics, Obs, Spec


@register("algo", "openai_es")
class OpenAIES(Agent):
    """Evolution strategies with Adam."""

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
    def act(self, obs: Obs, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        if params is None:
            params = self.mean[None]
        return self.policy(obs, params), {}

    @torch.no_grad()
    def ask(self) -> Tensor:
        """Returns a sampled population of parameter vectors, [population, P]."""
        cfg = self.cfg
        noise = directions(self.noise, cfg.population, self.policy.size, cfg.antithetic, cfg.orthogonal)
        return self.mean + cfg.std * noise

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        """Takes one step of Adam with params [population, P] and their fitness [population]."""
        return self.climb(batch["params"], batch["fitness"])

    @kernel
    @torch.no_grad()
    def climb(self, params: Tensor, fitness: Tensor) -> Metrics:
        noise = (params - self.mean) / self.cfg.std
        utility = shaped(fitness, self.cfg.shaping)
        ascent = utility @ noise / (len(params) * self.cfg.std)
        norm = self.optim.apply(-ascent)
        return {"loss/fitness_mean": fitness.mean(), "loss/fitness_best": fitness.max(), "loss/grad_norm": norm}


def shaped(fitness: Tensor, how: str) -> Tensor:
    """Returns the utility of every member, [population].

    ranks: from -1/2 for the worst member to 1/2 for the best, with the mean rank for ties. standardise: fitness with
    mean 0 and standard deviation 1. none: the fitness itself.
    """
    if how == "none":
        return fitness
    if how == "ranks":
        worse = (fitness[:, None] > fitness).sum(1)
        tied = (fitness[:, None] == fitness).sum(1)
        rank = worse + tied / 2 - 0.5
        return rank / max(1, len(fitness) - 1) - 0.5
    std = fitness.std(correction=0)
    return (fitness - fitness.mean()) / (std + 1e-8)
