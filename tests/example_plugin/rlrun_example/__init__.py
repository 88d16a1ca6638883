"""A plug-in: one more algorithm for rlrun, in this file and one YAML."""

import torch
from gymnasium.spaces import Discrete

from rlrun.config.schema import PositiveFloat, PositiveInt, config
from rlrun.core.agent import Agent
from rlrun.networks.heads import Head
from rlrun.networks.stacked import Stacked
from rlrun.registry import register


@register("algo", "hill_climber")
class HillClimber(Agent):
    """Keeps the best weights seen and tries Gaussian steps around them."""

    actions = Discrete

    @config
    class Config:
        population: PositiveInt
        step_size: PositiveFloat

    def __init__(self, cfg, spec, parts):
        super().__init__(cfg, spec, parts)
        self.policy = Stacked(Head(parts.torso(members=1), int(spec.action.n), members=1))
        self.register_buffer("best", torch.zeros(self.policy.size))
        self.register_buffer("score", torch.tensor(-torch.inf))
        self.noise = parts.stream("steps")

    def act(self, obs, carry, explore, params=None):
        return self.policy(obs, self.best[None] if params is None else params).argmax(-1), {}

    def ask(self):
        return self.best + self.cfg.step_size * self.noise.normal(self.cfg.population, self.policy.size)

    def update(self, batch, ctx):
        score, place = batch["fitness"].max(0)
        if score > self.score:
            self.best.copy_(batch["params"][place])
            self.score.copy_(score)
        return {"best": self.score.clone()}
