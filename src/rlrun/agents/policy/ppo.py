"""Proximal policy optimisation with a clipped objective (Schulman et al. 2017, arXiv 1707.06347).

This is A2C with another policy loss. Options that are not in the paper: clipped values and log-probabilities, a limit
on the KL divergence, and a critic that learns before the policy.
"""

import torch
from torch import Tensor

from rlrun.agents.policy.a2c import A2C
from rlrun.core.parts import Parts
from rlrun.functional.losses import clip_fraction, clipped_surrogate, masked_mean
from rlrun.settings import PositiveFloat, Scheduled, config, register
from rlrun.types import Metrics, Spec


@register("algo", "ppo")
class PPO(A2C):
    """A2C with the clipped surrogate objective."""

    @config
    class Config(A2C.Config):
        clip_range: Scheduled[PositiveFloat]
        log_prob_clip: PositiveFloat | None

    cfg: Config
    clip_range: Tensor

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        self.register_buffer("clip_range", torch.as_tensor(cfg.clip_range), persistent=False)

    def policy_loss(
        self, log_prob: Tensor, log_ratio: Tensor, advantage: Tensor, weight: Tensor
    ) -> tuple[Tensor, Metrics]:
        limit = self.cfg.log_prob_clip
        if limit is not None:
            old_log_prob = (log_prob - log_ratio).detach()
            log_ratio = log_prob.clamp(-limit, limit) - old_log_prob.clamp(-limit, limit)
        ratio = log_ratio.exp()
        surrogate = clipped_surrogate(ratio, advantage, self.clip_range)
        clipped = clip_fraction(ratio.detach(), self.clip_range)
        return -masked_mean(surrogate, weight), {"clipped": masked_mean(clipped, weight)}
