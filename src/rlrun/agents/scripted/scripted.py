"""An agent that acts by a controller that is written by hand, and never learns.

It is a baseline for returns, and records the data sets that imitation learns from.
"""

from typing import Annotated

import torch
from torch import Tensor

from rlrun.agents.scripted.controllers import Controller
from rlrun.core.agent import Agent
from rlrun.core.parts import Parts
from rlrun.settings import Part, config, register
from rlrun.types import Batch, Context, Metrics, Obs, Spec


@register("algo", "scripted")
class Scripted(Agent):
    """Acts by a controller."""

    @config
    class Config:
        controller: Annotated[dict[str, object], Part("controller")]

    cfg: Config

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        self.controller = parts.part("controller", cfg.controller, Controller, spec)

    @torch.no_grad()
    def act(self, obs: Obs, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        return self.controller.control(obs), {}

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        return {}
