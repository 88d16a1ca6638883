"""Drawing indices in proportion to their priorities, and changing them, as a few vector operations on any device."""

import torch
from torch import Tensor

from rlrun.module import Module

TOP = 1024  # at most so many nodes on the top level, which every draw looks at
WIDTH = 32  # nodes under each of the others, so that little is looked at below


class SumTree(Module):
    """A wide, low tree: [nodes] at the top, [nodes above, WIDTH] below. Float64, for sums of a million numbers."""

    def __init__(self, size: int, device: torch.device):
        super().__init__()
        nodes = [-(-size // WIDTH)]
        while nodes[0] > TOP:
            nodes.insert(0, -(-nodes[0] // WIDTH))
        shapes = [(nodes[0],), *((count, WIDTH) for count in nodes)]
        self.levels = [torch.zeros(shape, dtype=torch.float64, device=device) for shape in shapes]
        for number, level in enumerate(self.levels):
            self.register_buffer(f"level_{number}", level)

    @property
    def total(self) -> Tensor:
        return self.levels[0].sum()

    def get(self, index: Tensor) -> Tensor:
        return self.levels[-1].view(-1).index_select(0, index)

    def set(self, index: Tensor, priority: Tensor | float) -> None:
        """Give leaves [n] new priorities; of an index that comes twice, one of its priorities stays."""
        leaves, priority = self.levels[-1], priority if isinstance(priority, float) else priority.to(torch.float64)
        leaves.view(-1).scatter_(0, index, priority)
        for level, above in zip(self.levels[:0:-1], self.levels[-2::-1], strict=True):
            index = index // WIDTH
            above.view(-1).scatter_(0, index, level.index_select(0, index).sum(1))

    def sample(self, uniform: Tensor) -> Tensor:
        """Indices [n] for numbers [levels, n] in [0, 1): on every level a node in proportion to what lies under it.

        A number below 1 times a sum is less than the sum, so that no node of 0 is ever reached.
        """
        (top, *lower), (first, *shares) = self.levels, uniform.to(torch.float64).unbind()
        sums = top.cumsum(0)
        index = torch.searchsorted(sums, first * sums[-1], right=True)
        for level, share in zip(lower, shares, strict=True):
            sums = level.index_select(0, index).cumsum(1)
            column = torch.searchsorted(sums, share.unsqueeze(1) * sums[:, -1:], right=True)
            index = torch.add(column.squeeze(1), index, alpha=WIDTH)
        return index

    def clear(self) -> None:
        for level in self.levels:
            level.zero_()
