"""Gaussian exploration noise, independent at every step."""

from typing import Any

import torch
from torch import Tensor

from rlrun.agents.noise.action_noise import ActionNoise, dimensions, per_dimension
from rlrun.functional.distributions import Source
from rlrun.settings import NonNegativePerDimension, PerDimension, config, register
from rlrun.types import Batch, Spec


@register("noise", "gaussian")
class GaussianNoise(ActionNoise):
    """Adds N(mean, std^2)."""

    @config
    class Config(ActionNoise.Config):
        mean: PerDimension
        std: NonNegativePerDimension

    mean: Tensor
    std: Tensor
    variance: Tensor

    def __init__(self, cfg: Config, spec: Spec):
        super().__init__(cfg, spec)
        dims = dimensions("gaussian", spec)
        mean = per_dimension("mean", cfg.mean, dims)
        std = per_dimension("std", cfg.std, dims)
        variance = [number**2 for number in std]
        self.register_buffer("mean", torch.tensor(mean), persistent=False)
        self.register_buffer("std", torch.tensor(std), persistent=False)
        self.register_buffer("variance", torch.tensor(variance), persistent=False)

    def noisy(self, action: Tensor, carry: Batch, source: Source) -> tuple[Tensor, Batch]:
        noise = self.mean + self.std * source.normal(*action.shape)
        return (action + noise).clamp(-1, 1), {}

    def noisy_sample(self, dist: Any, carry: Batch, source: Source) -> tuple[Tensor, Any, Batch]:
        noisy_dist = dist.plus(self.mean, self.variance)
        return noisy_dist.sample(noisy_dist.noise(source)), noisy_dist, {}
