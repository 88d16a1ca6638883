"""No operation: acts with the policy it was born with and never learns.

What others must beat, and a measure of how fast the pipeline is without them.
"""

from typing import Any

import torch
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from torch import Tensor

from rlrun.config.schema import config
from rlrun.core.agent import Agent
from rlrun.core.parts import Parts
from rlrun.networks.heads import stochastic_policy
from rlrun.registry import register
from rlrun.types import Batch, Context, Metrics, Spec


@register("algo", "nop")
class NOP(Agent):
    actions = (Box, Discrete, MultiDiscrete, MultiBinary)

    @config
    class Config:
        pass

    cfg: Config

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        # gain 0.01: nearly the same distribution, whatever is observed
        self.policy = stochastic_policy(parts.torso(), spec.action, gain=0.01).requires_grad_(False)
        self.noise = parts.stream("act")

    @torch.no_grad()
    def act(self, obs: Any, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        dist = self.policy(obs)
        return (dist.sample(dist.noise(self.noise)) if explore else dist.mode()), {}

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        return {}
