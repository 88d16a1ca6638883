"""A deterministic model of the environment, which stores the last transition of every state-action pair."""

import torch
from torch import Tensor, nn

from rlrun.types import Batch

FIELDS = ("reward", "next_state", "terminated", "weight")


class TabularModel(nn.Module):
    """A table of transitions, indexed by pair = state * num_actions + action."""

    reward: Tensor
    next_state: Tensor
    terminated: Tensor
    weight: Tensor

    def __init__(self, pairs: int):
        super().__init__()
        self.register_buffer("reward", torch.zeros(pairs))
        self.register_buffer("next_state", torch.zeros(pairs).long())
        self.register_buffer("terminated", torch.zeros(pairs).bool())
        self.register_buffer("weight", torch.zeros(pairs))  # 1 where the pair was visited

    def add(self, step: Batch) -> None:
        """Stores transitions [batch], without masked steps (weight 0)."""
        valid = step["weight"] > 0
        row = torch.ones_like(step["pair"]).cumsum(0) - 1
        row = torch.where(valid, row, 0).cummax(0).values  # a masked step stores the valid one before it once more,
        pair = step["pair"][row]
        for name in FIELDS:
            table = getattr(self, name)
            table[pair] = torch.where(valid[row], step[name][row], table[pair])  # or, without one, what is there

    def steps(self, pair: Tensor) -> Batch:
        """Returns the stored transitions of pairs [batch]."""
        found = {"pair": pair}
        for name in FIELDS:
            table = getattr(self, name)
            found[name] = table[pair]
        return found

    def sample(self, noise: Tensor) -> Tensor:
        """Returns pairs drawn uniformly from the visited pairs, [batch]; noise is [batch] in [0, 1)."""
        visited = self.weight.cumsum(0)
        pair = torch.searchsorted(visited, noise * visited[-1], right=True)
        return pair.clamp(max=len(visited) - 1)
