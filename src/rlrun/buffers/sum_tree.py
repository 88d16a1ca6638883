"""Sampling of indices in proportion to their priorities, with a few vector operations on any device."""

import math

import torch
from torch import Tensor

from rlrun.module import Module

TOP = 1024  # maximum number of nodes on the top level; every draw reads all of them
WIDTH = 32  # children per node; every draw reads one group of children on each lower level


class SumTree(Module):
    """A tree of few, wide levels in which every node holds the sum of its children; the leaves are priorities.

    The top level is [nodes], every other level [nodes of the level above, WIDTH]. Sums are float64, because they may
    have a million terms.
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
        """Sets the priorities of leaves [n]. If an index occurs twice, either of its priorities may be kept."""
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

    def raise_to(self, power: float) -> None:
        """Raises every priority to a power above 0."""
        self.levels[-1].pow_(power)
        levels_from_below = self.levels[:0:-1]
        levels_above = self.levels[-2::-1]
        for level, above in zip(levels_from_below, levels_above, strict=True):
            above.view(-1)[: len(level)] = level.sum(1)

    def sample(self, uniform: Tensor) -> Tensor:
        """Returns leaf indices [n], drawn with uniform numbers [levels, n] from [0, 1).

        On every level, a node is chosen with probability proportional to its sum. A leaf of priority 0 is never drawn,
        because the product of the total and a number below 1 is less than the total.
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
            index = torch.add(column.squeeze(1), index, alpha=WIDTH)  # index * WIDTH + column
        return index

    def clear(self) -> None:
        """Sets every priority to 0."""
        for level in self.levels:
            level.zero_()


def _groups(count: int) -> int:
    """Returns the number of groups of WIDTH nodes that hold `count` nodes."""
    return math.ceil(count / WIDTH)
