"""No operation: an agent that acts with its initial policy and never learns.

It is a baseline for returns, and measures the speed of a run without learning.
"""

import torch
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from torch import Tensor

from rlrun.core.agent import Agent
from rlrun.core.parts import Parts
from rlrun.networks.heads import stochastic_policy
from rlrun.settings import config, register
from rlrun.spaces import MixedSpace
from rlrun.types import Batch, Context, Metrics, Obs, Spec


@register("algo", "nop")
class NOP(Agent):
    """An agent that never learns."""

    actions = (Box, Discrete, MultiDiscrete, MultiBinary, MixedSpace)

    @config
    class Config:
        pass

    cfg: Config

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        # a gain of 0.01 gives nearly the same action distribution for every observation
        self.policy = stochastic_policy(parts.torso(), spec.action, gain=0.01).requires_grad_(False)
        self.noise = parts.stream("act")

    @torch.no_grad()
    def act(self, obs: Obs, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        dist = self.policy(obs)
        if not explore:
            return dist.mode(), {}
        return dist.sample(dist.noise(self.noise)), {}

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        return {}
