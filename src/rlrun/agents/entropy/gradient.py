"""Entropy led to a target by gradient descent on log alpha, as SAC has it (Haarnoja et al. 2018, arXiv 1812.05905)."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from rlrun.agents.entropy.target import EntropyTarget, Window
from rlrun.config.schema import PositiveFloat, Size, config
from rlrun.core.state import Optim
from rlrun.registry import register
from rlrun.types import Metrics


@register("entropy_target", "sgd")
class Gradient(EntropyTarget):
    """The loss is log alpha (H - target), with H averaged over a window: alpha falls where the entropy is above."""

    @config
    class Config:
        target_entropy: float | None
        initial_alpha: PositiveFloat
        learning_rate: PositiveFloat
        window: Size

    def __init__(self, cfg: Any, default: float):
        super().__init__()
        self.target = default if cfg.target_entropy is None else cfg.target_entropy
        self.log_alpha = nn.Parameter(torch.tensor(math.log(cfg.initial_alpha)))
        self.optim = Optim([self.log_alpha], cfg.learning_rate)
        self.average = Window(cfg.window)

    @property
    def alpha(self) -> Tensor:
        return self.log_alpha.detach().exp()

    def adjust(self, entropy: Tensor) -> Metrics:
        self.average.add(entropy)
        gap = self.average.mean() - self.target
        self.optim.step(self.log_alpha * gap)
        return {"entropy_target_alpha": self.alpha, "entropy_target_gap": gap}
