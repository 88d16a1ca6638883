"""What is collected and what was recorded, sampled side by side."""

from typing import Any

import torch
from torch import Tensor, nn

from rlrun.buffers.demo_lines import joined
from rlrun.buffers.replay import Replay
from rlrun.types import Batch, Metrics, Step


class Mixed(nn.Module):
    """Two buffers as one. New transitions go to the first; the second stays as it was filled.

    An off-policy loss is a mean over rows, times `weight`. Weights that make up for the rows of the other part make it
    the sum of both losses: one gradient and one step, whatever the algorithm. `shown` is 1 for what was recorded.
    """

    def __init__(self, collected: Replay, recorded: Replay):
        super().__init__()
        self.collected, self.recorded = collected, recorded
        self.online = False  # whether a batch holds what was collected; the loop says so before each

    def __len__(self) -> int:
        return len(self.collected)

    def add(self, obs: Any, action: Tensor, step: Step, extras: Batch) -> None:
        self.collected.add(obs, action, step, extras)

    def sample(self, size: int, progress: float = 0.0) -> Batch:
        """`size` transitions of each part."""
        shown = self.recorded.sample(size, progress)
        shown["shown"] = torch.ones_like(shown["weight"])
        if not self.online:
            return shown
        batch = self.collected.sample(size, progress)
        batch["shown"] = torch.zeros_like(batch["weight"])
        both: Batch = joined([batch, shown])
        return both | {"weight": 2 * both["weight"]}

    def all(self) -> Batch:
        """Every transition that is there, those that were collected first."""
        batch: Batch = joined([self.collected.all(), self.recorded.all()])
        return batch

    def feedback(self, batch: Batch, out: Metrics | tuple[Metrics, Tensor]) -> None:
        if not isinstance(out, tuple):
            return
        metrics, priority = out
        parts = [self.collected, self.recorded] if self.online else [self.recorded]
        for part, index, own in zip(parts, batch["index"].chunk(len(parts)), priority.chunk(len(parts)), strict=True):
            part.feedback({"index": index}, (metrics, own))

    def clear(self) -> None:
        self.collected.clear()
        self.recorded.clear()
