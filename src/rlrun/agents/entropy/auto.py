"""The learned temperature of soft actor-critic (Haarnoja et al. 2018, arXiv 1812.05905, eq. 18)."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from rlrun.agents.entropy.coefficient import EntropyCoefficient, TargetEntropy
from rlrun.core.state import Optim
from rlrun.functional.losses import weighted_mean
from rlrun.settings import NonNegativeFloat, PositiveFloat, config, register
from rlrun.types import Metrics


@register("entropy", "auto")
class Auto(EntropyCoefficient):
    """Minimises log alpha (H - target) by gradient descent: alpha increases while the entropy H is below its target."""

    @config
    class Config:
        initial_alpha: PositiveFloat
        max_alpha: PositiveFloat | None
        learning_rate: NonNegativeFloat
        target_entropy: TargetEntropy

    def __init__(self, cfg: Any, default_target: float):
        super().__init__()
        self.target = cfg.target_entropy
        if self.target is None:
            self.target = default_target
        self.log_alpha = nn.Parameter(torch.tensor(cfg.initial_alpha).log())
        self.max_alpha = cfg.max_alpha
        self.limit()
        self.optim = Optim([self.log_alpha], cfg.learning_rate)

    @property
    def alpha(self) -> Tensor:
        return self.log_alpha.detach().exp()

    def adjust(self, entropy: Tensor, weight: Tensor) -> Metrics:
        alpha = self.alpha
        gap = weighted_mean(self.target - entropy, weight)
        self.optim.step(-self.log_alpha * gap)
        self.limit()
        return {"loss/alpha": alpha}

    @torch.no_grad()
    def limit(self) -> None:
        if self.max_alpha is not None:
            self.log_alpha.clamp_(max=math.log(self.max_alpha))
