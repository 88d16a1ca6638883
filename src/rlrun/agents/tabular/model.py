"""What every state and action led to when last tried: a deterministic model of the environment."""

import torch
from torch import Tensor, nn

from rlrun.types import Batch


class TabularModel(nn.Module):
    """Pairs are numbered state * actions + action. Pairs never tried are never sampled."""

    reward: Tensor
    next_state: Tensor
    terminated: Tensor
    weight: Tensor

    def __init__(self, pairs: int):
        super().__init__()
        self.register_buffer("reward", torch.zeros(pairs))
        self.register_buffer("next_state", torch.zeros(pairs).long())
        self.register_buffer("terminated", torch.zeros(pairs).bool())
        self.register_buffer("weight", torch.zeros(pairs))  # 1 where the pair was tried

    def add(self, step: Batch) -> None:
        """Transitions by pair, [batch]; rows of weight 0 are none, and go where they change nothing."""
        pair = step["pair"][step["weight"] > 0]
        for name in ("reward", "next_state", "terminated", "weight"):
            getattr(self, name)[pair] = step[name][step["weight"] > 0]

    def steps(self, pair: Tensor) -> Batch:
        """What is known of pairs [batch]."""
        names = ("reward", "next_state", "terminated", "weight")
        return {"pair": pair} | {name: getattr(self, name)[pair] for name in names}

    def sample(self, noise: Tensor) -> Tensor:
        """Pairs drawn uniformly from those tried, [batch]; noise [batch] in [0, 1)."""
        tried = self.weight.cumsum(0)
        return torch.searchsorted(tried, noise * tried[-1], right=True).clamp(max=len(tried) - 1)
