"""A constant entropy coefficient."""

import torch
from torch import Tensor

from rlrun.agents.entropy.coefficient import EntropyCoefficient
from rlrun.settings import NonNegativeFloat, Scheduled, config, register
from rlrun.types import Metrics


@register("entropy", "fixed")
class Fixed(EntropyCoefficient):
    """Sets alpha to `ent_coef`."""

    @config
    class Config:
        ent_coef: Scheduled[NonNegativeFloat]

    adjusts = False
    ent_coef: Tensor

    def __init__(self, cfg: Config, default_target: float):
        super().__init__()
        self.register_buffer("ent_coef", torch.as_tensor(cfg.ent_coef), persistent=False)

    @property
    def alpha(self) -> Tensor:
        return self.ent_coef

    def adjust(self, entropy: Tensor, weight: Tensor) -> Metrics:
        return {}
