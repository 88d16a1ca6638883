"""Drawing indices in proportion to their priorities, and changing them, as a few vector operations on any device."""

import torch
from torch import Tensor, nn

WIDTH = 128  # leaves under one node: a balance between adding up the nodes and adding up what lies under them


class SumTree(nn.Module):
    """A tree of two levels. Float64, so that a priority of zero is never drawn through rounding."""

    leaves: Tensor
    nodes: Tensor

    def __init__(self, size: int, device: torch.device):
        super().__init__()
        rows = -(-size // WIDTH)
        self.register_buffer("leaves", torch.zeros(rows, WIDTH, dtype=torch.float64, device=device))
        self.register_buffer("nodes", torch.zeros(rows, dtype=torch.float64, device=device))

    @property
    def total(self) -> Tensor:
        return self.nodes.sum()

    def get(self, index: Tensor) -> Tensor:
        return self.leaves.view(-1).index_select(0, index)

    def set(self, index: Tensor, priority: Tensor | float) -> None:
        """Give leaves [n] new priorities; of an index that comes twice, one of its priorities stays."""
        self.leaves.view(-1).scatter_(0, index, priority if isinstance(priority, float) else priority.to(torch.float64))
        row = index // WIDTH
        self.nodes.scatter_(0, row, self.leaves.index_select(0, row).sum(1))

    def sample(self, uniform: Tensor) -> Tensor:
        """Indices [n] for numbers [n] in [0, 1)."""
        above = self.nodes.cumsum(0)
        goal = uniform.to(torch.float64) * above[-1]
        row = torch.searchsorted(above, goal, right=True).clamp(max=len(above) - 1)
        rest = goal - (above.index_select(0, row) - self.nodes.index_select(0, row))
        inside = self.leaves.index_select(0, row).cumsum(1)
        # rounding may leave `rest` at or past the row's sum: the last leaf that holds anything is meant then
        rest = torch.minimum(rest, inside[:, -1] * (1 - 1e-12))
        column = torch.searchsorted(inside, rest[:, None], right=True).squeeze(1)
        return row * WIDTH + column
