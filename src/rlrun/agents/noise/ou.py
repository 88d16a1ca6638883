"""Ornstein-Uhlenbeck exploration noise, correlated in time, as in DDPG (Lillicrap et al. 2016, arXiv 1509.02971).

    x_t = x_{t-1} + theta (mean - x_{t-1}) dt + std sqrt(dt) eps_t,   eps_t ~ N(0, 1)

Given x_{t-1}, x_t is Gaussian. Its stationary variance is std^2 / (2 theta) for small theta dt.
"""

import math
from typing import Any

import torch
from torch import Tensor

from rlrun.agents.noise.action_noise import ActionNoise, dimensions, per_dimension
from rlrun.core.previous import remembered
from rlrun.errors import ConfigError
from rlrun.functional.distributions import Source
from rlrun.settings import NonNegativeFloat, NonNegativePerDimension, PerDimension, PositiveFloat, config, register
from rlrun.types import Batch, Spec


@register("noise", "ou")
class OrnsteinUhlenbeck(ActionNoise):
    """Adds the value x_t of an Ornstein-Uhlenbeck process, which restarts at `initial` in every episode.

    The extra `carry.noise` [num_envs, actions] is x_t.
    """

    @config
    class Config(ActionNoise.Config):
        mean: PerDimension
        std: NonNegativePerDimension
        theta: NonNegativeFloat
        dt: PositiveFloat
        initial: PerDimension

    mean: Tensor
    initial: Tensor
    step_std: Tensor
    step_variance: Tensor

    def __init__(self, cfg: Config, spec: Spec):
        super().__init__(cfg, spec)
        if cfg.theta > 1 / cfg.dt:
            raise ConfigError(f"algo.noise.theta={cfg.theta}: must be at most 1 / dt, which is {1 / cfg.dt}")
        self.rate = cfg.theta * cfg.dt
        dims = dimensions("ou", spec)
        mean = per_dimension("mean", cfg.mean, dims)
        initial = per_dimension("initial", cfg.initial, dims)
        std = per_dimension("std", cfg.std, dims)
        step_std = [number * math.sqrt(cfg.dt) for number in std]
        step_variance = [number**2 for number in step_std]
        self.register_buffer("mean", torch.tensor(mean), persistent=False)
        self.register_buffer("initial", torch.tensor(initial), persistent=False)
        self.register_buffer("step_std", torch.tensor(step_std), persistent=False)
        self.register_buffer("step_variance", torch.tensor(step_variance), persistent=False)

    def noisy(self, action: Tensor, carry: Batch, source: Source) -> tuple[Tensor, Batch]:
        noise = self.expected(action, carry) + self.step_std * source.normal(*action.shape)
        return (action + noise).clamp(-1, 1), {"carry.noise": noise}

    def noisy_sample(self, dist: Any, carry: Batch, source: Source) -> tuple[Tensor, Any, Batch]:
        expected = self.expected(dist.mean, carry)
        noise = expected + self.step_std * source.normal(*expected.shape)
        action = dist.sample(dist.noise(source)) + noise
        return action, dist.plus(expected, self.step_variance), {"carry.noise": noise}

    def expected(self, action: Tensor, carry: Batch) -> Tensor:
        """Returns E[x_t | x_{t-1}], [num_envs, actions]. action: any tensor of this shape."""
        initial = self.initial.expand_as(action)
        previous = remembered(carry, "noise", initial)
        return previous + self.rate * (self.mean - previous)
