"""Sampling of indices in proportion to their priorities, as a few vector operations on any device."""

import torch
from torch import Tensor

from rlrun.module import Module

TOP = 1024  # maximum number of nodes on the top level, all of which every draw reads
WIDTH = 32  # nodes under each of the others, of which a draw reads one group a level


class SumTree(Module):
    """A wide, low tree: [nodes] at the top, [nodes above, WIDTH] below. Every node holds the sum of those below it.

    Float64, for sums of a million numbers.
    """

    def __init__(self, size: int, device: torch.device):
        super().__init__()
        nodes = [_groups(size)]
        while nodes[0] > TOP:
            nodes.insert(0, _groups(nodes[0]))
        shapes: list[tuple[int, ...]] = [(nodes[0],)]
        for count in nodes:
            shapes.append((count, WIDTH))
        self.levels: list[Tensor] = []
        for number, shape in enumerate(shapes):
            level = torch.zeros(shape, dtype=torch.float64, device=device)
            self.levels.append(level)
            self.register_buffer(f"level_{number}", level)

    @property
    def total(self) -> Tensor:
        """The sum of all priorities, 0-d."""
        return self.levels[0].sum()

    def get(self, index: Tensor) -> Tensor:
        """Returns the priorities of leaves [n]."""
        return self.levels[-1].view(-1).index_select(0, index)

    def set(self, index: Tensor, priority: Tensor | float) -> None:
        """Sets the priorities of leaves [n]; of an index that comes twice, one of its priorities stays."""
        if isinstance(priority, Tensor):
            priority = priority.to(torch.float64)
        leaves = self.levels[-1]
        leaves.view(-1).scatter_(0, index, priority)
        levels_from_below = self.levels[:0:-1]
        levels_above = self.levels[-2::-1]
        for level, above in zip(levels_from_below, levels_above, strict=True):
            index = index // WIDTH
            sums = level.index_select(0, index).sum(1)
            above.view(-1).scatter_(0, index, sums)

    def sample(self, uniform: Tensor) -> Tensor:
        """Returns indices [n] drawn by uniform numbers [levels, n]: on every level a node in proportion to its sum.

        A number below 1 times a sum is less than the sum, so that no node of 0 is ever reached.
        """
        uniform_top, *uniform_lower = uniform.to(torch.float64).unbind()
        top, *lower = self.levels
        cumulative = top.cumsum(0)
        total = cumulative[-1]
        index = torch.searchsorted(cumulative, uniform_top * total, right=True)
        for level, uniform_level in zip(lower, uniform_lower, strict=True):
            cumulative = level.index_select(0, index).cumsum(1)
            total = cumulative[:, -1:]
            point = uniform_level.unsqueeze(1) * total
            column = torch.searchsorted(cumulative, point, right=True)
            index = torch.add(column.squeeze(1), index, alpha=WIDTH)
        return index

    def clear(self) -> None:
        """Sets every priority to 0."""
        for level in self.levels:
            level.zero_()


def _groups(count: int) -> int:
    """Returns how many groups of WIDTH nodes `count` nodes make, rounded up."""
    return -(-count // WIDTH)
