"""A learned temperature as in soft actor-critic (arXiv 1812.05905), but from a moving average of the entropy."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from rlrun.agents.entropy.coefficient import EntropyCoefficient, MovingAverage, TargetEntropy
from rlrun.core.state import Optim
from rlrun.functional.losses import masked_mean
from rlrun.settings import PositiveFloat, Size, config, register
from rlrun.types import Metrics


@register("entropy", "sgd")
class Sgd(EntropyCoefficient):
    """Minimises log alpha (H - target) by gradient descent, where H is the mean entropy of the last `window` updates:
    alpha increases while H is below the target."""

    @config
    class Config:
        target_entropy: TargetEntropy
        initial_alpha: PositiveFloat
        learning_rate: PositiveFloat
        window: Size

    def __init__(self, cfg: Any, default_target: float):
        super().__init__()
        self.target = cfg.target_entropy
        if self.target is None:
            self.target = default_target
        self.log_alpha = nn.Parameter(torch.tensor(math.log(cfg.initial_alpha)))
        self.optim = Optim([self.log_alpha], cfg.learning_rate)
        self.average = MovingAverage(cfg.window)

    @property
    def alpha(self) -> Tensor:
        return self.log_alpha.detach().exp()

    def adjust(self, entropy: Tensor, weight: Tensor) -> Metrics:
        self.average.add(masked_mean(entropy, weight))
        gap = self.average.mean() - self.target
        self.optim.step(self.log_alpha * gap)
        return {"loss/alpha": self.alpha, "loss/entropy_gap": gap}
