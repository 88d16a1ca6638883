"""UCB1 (Auer, Cesa-Bianchi and Fischer 2002): scores arms by mean reward plus confidence width.

Arms that were never pulled have an infinite score.
"""

import torch
from torch import Tensor

from rlrun.agents.bandits.multi_armed import MultiArmed
from rlrun.settings import NonNegativeFloat, config, register


@register("algo", "ucb")
class UCB(MultiArmed):
    """Pulls the arm with the highest upper confidence bound."""

    @config
    class Config:
        confidence: NonNegativeFloat

    cfg: Config

    def score(self, context: Tensor) -> Tensor:
        counts = self.counts[context]
        pulls = counts.sum(-1, keepdim=True).clamp(min=1)
        width = (2 * pulls.log() / counts.clamp(min=1)).sqrt()
        bound = self.value(context) + self.cfg.confidence * width
        return torch.where(counts > 0, bound, torch.inf)
