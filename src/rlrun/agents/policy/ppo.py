"""Proximal policy optimisation with a clipped objective (Schulman et al. 2017, arXiv 1707.06347).

Everything but the policy's loss is A2C's. Beyond the paper, by option: clipped values, a limit on the KL divergence, a
critic fitted first, a clip range that moves with the run.
"""

import torch
from torch import Tensor

from rlrun.agents.policy.a2c import A2C
from rlrun.config.schema import NonNegativeFloat, PositiveFloat, config
from rlrun.functional.losses import average, clip_fraction, clipped_surrogate
from rlrun.functional.schedules import linear
from rlrun.registry import register
from rlrun.types import Metrics


@register("algo", "ppo")
class PPO(A2C):
    @config
    class Config(A2C.Config):
        clip_range: PositiveFloat
        clip_range_end: NonNegativeFloat | None

    clip_range: Tensor

    def __init__(self, cfg, spec, parts):
        super().__init__(cfg, spec, parts)
        self.register_buffer("clip_range", torch.tensor(cfg.clip_range))

    def anneal(self, progress: float) -> None:
        super().anneal(progress)
        if self.cfg.clip_range_end is not None:
            self.clip_range.fill_(linear(self.cfg.clip_range, self.cfg.clip_range_end, progress))

    def policy_loss(
        self, log_prob: Tensor, log_ratio: Tensor, advantage: Tensor, weight: Tensor
    ) -> tuple[Tensor, Metrics]:
        ratio = log_ratio.exp()
        gain = clipped_surrogate(ratio, advantage, self.clip_range)
        return -average(gain, weight), {"clipped": average(clip_fraction(ratio.detach(), self.clip_range), weight)}
