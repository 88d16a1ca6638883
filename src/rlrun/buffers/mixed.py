"""Collected and recorded transitions, sampled side by side."""

from typing import Any

import torch
from torch import Tensor, nn

from rlrun.buffers.replay import Replay
from rlrun.nested import joined
from rlrun.types import Batch, Metrics, Step


class Mixed(nn.Module):
    """Two buffers as one. New transitions go to the first; the second stays as it was filled.

    An off-policy loss is a mean over rows, times `weight`. Doubled weights make it the sum of the losses of both parts:
    one gradient and one step, whatever the algorithm. `shown` is 1 for recorded transitions.
    """

    def __init__(self, collected: Replay, recorded: Replay):
        super().__init__()
        self.collected = collected
        self.recorded = recorded
        self.online = False  # whether a batch holds collected transitions; the loop sets it before each

    def __len__(self) -> int:
        return len(self.collected)

    def add(
        self,
        obs: Any,
        action: Tensor,
        step: Step,
        extras: Batch,
    ) -> None:
        """Stores one vector step among the collected transitions."""
        self.collected.add(obs, action, step, extras)

    def sample(self, size: int, progress: float = 0.0) -> Batch:
        """Returns `size` transitions of each part."""
        recorded = self.recorded.sample(size, progress)
        recorded["shown"] = torch.ones_like(recorded["weight"])
        if not self.online:
            return recorded
        collected = self.collected.sample(size, progress)
        collected["shown"] = torch.zeros_like(collected["weight"])
        batch: Batch = joined([collected, recorded])
        batch["weight"] = 2 * batch["weight"]
        return batch

    def all(self) -> Batch:
        """Returns every stored transition, the collected ones first."""
        batch: Batch = joined([self.collected.all(), self.recorded.all()])
        return batch

    def feedback(self, batch: Batch, out: Metrics | tuple[Metrics, Tensor]) -> None:
        """Passes the priorities that an agent returned to the part from which each row came."""
        if not isinstance(out, tuple):
            return
        metrics, priority = out
        if not self.online:
            self.recorded.feedback({"index": batch["index"]}, (metrics, priority))
            return
        collected_index, recorded_index = batch["index"].chunk(2)
        collected_priority, recorded_priority = priority.chunk(2)
        self.collected.feedback({"index": collected_index}, (metrics, collected_priority))
        self.recorded.feedback({"index": recorded_index}, (metrics, recorded_priority))

    def clear(self) -> None:
        """Removes every transition of both parts."""
        self.collected.clear()
        self.recorded.clear()
