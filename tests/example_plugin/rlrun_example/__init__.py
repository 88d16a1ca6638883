"""A plug-in that adds an algorithm, a network and a policy to rlrun, by this file and three YAML files."""

import torch
from gymnasium.spaces import Discrete
from torch import nn

from rlrun.core.agent import Agent
from rlrun.networks.heads import Head, PolicyHead
from rlrun.networks.inputs import FlattenInputs
from rlrun.networks.stacked import Stacked
from rlrun.settings import PositiveFloat, PositiveInt, config, register

EULER = 0.5772156649015329


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
        return {"loss/best": self.score.clone()}


@register("network", "fourier")
class Fourier(nn.Module):
    """Random Fourier features (Rahimi and Recht 2007)."""

    @config
    class Config:
        waves: PositiveInt
        scale: PositiveFloat

    def __init__(self, cfg, spaces, members):
        super().__init__()
        self.inputs = nn.ModuleList(FlattenInputs(space) for space in spaces)
        self.features = cfg.waves
        size = sum(part.size for part in self.inputs)
        self.register_buffer("frequency", cfg.scale * torch.randn(size, cfg.waves))
        self.register_buffer("phase", 2 * torch.pi * torch.rand(cfg.waves))

    def forward(self, *inputs):
        flat = torch.cat([part(x) for part, x in zip(self.inputs, inputs, strict=True)], -1)
        return torch.cos(flat @ self.frequency + self.phase)


class Kumaraswamy:
    """Independent Kumaraswamy distributions on (-1, 1), similar to Beta distributions (Kumaraswamy 1980,
    doi 10.1016/0022-1694(80)90036-0). a and b [..., actions] are above 1, so there is one mode.
    """

    def __init__(self, a, b):
        self.a, self.b = a, b

    def noise(self, source):
        return source.uniform(*self.a.shape)

    def sample(self, noise):
        x = (1 - (1 - noise) ** (1 / self.b)) ** (1 / self.a)
        return 2 * x - 1

    def mode(self):
        x = ((self.a - 1) / (self.a * self.b - 1)) ** (1 / self.a)
        return 2 * x - 1

    def log_prob(self, action):
        x = ((action + 1) / 2).clamp(1e-6, 1 - 1e-6)
        density = self.a * self.b / 2 * x ** (self.a - 1) * (1 - x**self.a) ** (self.b - 1)
        return density.log().sum(-1)

    def entropy(self):
        harmonic = torch.digamma(self.b + 1) + EULER
        entropy = 1 - 1 / self.b + (1 - 1 / self.a) * harmonic - (self.a * self.b / 2).log()
        return entropy.sum(-1)


@register("head", "kumaraswamy")
class KumaraswamyPolicy(PolicyHead):
    """A policy for Box actions whose samples never leave the bounds."""

    @config
    class Config:
        largest: PositiveFloat

    def __init__(self, cfg, torso, space, init_std):
        super().__init__(torso, 2 * space.shape[0], gain=0.01)
        self.largest = cfg.largest

    def forward(self, obs):
        outputs = super().forward(obs)
        a, b = (1 + self.largest * torch.sigmoid(outputs)).chunk(2, -1)
        return Kumaraswamy(a, b)
