"""A plug-in that adds an algorithm and a network to rlrun, by this file and two YAML files."""

import torch
from gymnasium.spaces import Discrete
from torch import nn

from rlrun.config.schema import PositiveFloat, PositiveInt, config
from rlrun.core.agent import Agent
from rlrun.networks.heads import Head
from rlrun.networks.inputs import Flatten
from rlrun.networks.stacked import Stacked
from rlrun.registry import register


@register("algo", "hill_climber")
class HillClimber(Agent):
    """Keeps the best weights so far and tries Gaussian perturbations of these weights."""

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


@register("network", "fourier")
class Fourier(nn.Module):
    """Random Fourier features (Rahimi and Recht 2007)."""

    @config
    class Config:
        waves: PositiveInt
        scale: PositiveFloat

    def __init__(self, cfg, spaces, members):
        super().__init__()
        self.inputs = nn.ModuleList(Flatten(space) for space in spaces)
        self.features = cfg.waves
        size = sum(part.size for part in self.inputs)
        self.register_buffer("frequency", cfg.scale * torch.randn(size, cfg.waves))
        self.register_buffer("phase", 2 * torch.pi * torch.rand(cfg.waves))

    def forward(self, *inputs):
        flat = torch.cat([part(x) for part, x in zip(self.inputs, inputs, strict=True)], -1)
        return torch.cos(flat @ self.frequency + self.phase)
