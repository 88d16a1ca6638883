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
        end = len(self.weight)
        pair = torch.where(step["weight"] > 0, step["pair"], end)  # masked steps go to a row that is cut off below
        for name in FIELDS:
            table = getattr(self, name)
            longer = torch.cat([table, table[:1]])
            longer[pair] = step[name]
            table.copy_(longer[:end])

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
