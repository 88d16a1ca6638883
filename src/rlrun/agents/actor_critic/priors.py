"""The part `algo.prior`: the prior policy pi0 from which KL-regularised policies deviate only for higher values."""

import math

import torch
from torch import Tensor, nn

from rlrun.functional.distributions import TruncatedNormal
from rlrun.settings import Fraction, PositiveFloat, config, register


class Prior(nn.Module):
    """Base class of the priors over actions in [-1, 1]. Subclasses are built from a config."""

    def log_prob(self, action: Tensor, previous: Tensor, first: Tensor) -> Tensor:
        """Returns log pi0(action), [batch].

        action, previous [batch, dims]: an action, and the one before it. first [batch]: 1 at the first timestep of an
        episode, where there is no previous action.
        """
        raise NotImplementedError


@register("prior", "uniform")
class UniformPrior(Prior):
    """All actions are equally likely."""

    @config
    class Config:
        pass

    def __init__(self, cfg: Config):
        super().__init__()

    def log_prob(self, action: Tensor, previous: Tensor, first: Tensor) -> Tensor:
        return torch.full_like(first, -math.log(2) * action.shape[-1])


@register("prior", "same_action")
class SameActionPrior(Prior):
    """In each dimension a mixture of two truncated normal distributions: a narrow one around the previous action, and
    a wide one around the middle of the range, which alone counts at the first timestep of an episode."""

    @config
    class Config:
        same_action_prob: Fraction
        same_action_noise: PositiveFloat

    def __init__(self, cfg: Config):
        super().__init__()
        self.cfg = cfg

    def log_prob(self, action: Tensor, previous: Tensor, first: Tensor) -> Tensor:
        full_range = torch.full_like(previous, 2.0)
        wide = TruncatedNormal(torch.zeros_like(previous), full_range, -1.0, 1.0)
        narrow = TruncatedNormal(previous, self.cfg.same_action_noise * full_range, -1.0, 1.0)
        p = self.cfg.same_action_prob * (1 - first.unsqueeze(-1))
        log_p_wide = torch.log(1 - p) + wide.log_density(action)
        log_p_narrow = torch.log(p) + narrow.log_density(action)
        return torch.logaddexp(log_p_wide, log_p_narrow).sum(-1)
