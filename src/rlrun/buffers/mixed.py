"""Buffer whose batches hold collected and recorded transitions in equal numbers."""

import torch
from torch import Tensor, nn

from rlrun.buffers.replay import Replay
from rlrun.tensors import joined
from rlrun.types import Batch, Step


class Mixed(nn.Module):
    """Combines two buffers: `collected` stores new transitions, `recorded` holds those of the data sets.

    Off-policy losses are means of weight * loss over the rows of a batch. A mixed batch has doubled weights, so its
    loss is the sum of the losses of its two halves, and one gradient step learns from both. This works for any
    algorithm that learns from single transitions. The entry `shown` of a batch is 1 in recorded rows, 0 in collected.
    """

    def __init__(self, collected: Replay, recorded: Replay):
        super().__init__()
        self.collected = collected
        self.recorded = recorded
        self.registered = collected.registered
        self.needs_errors = collected.needs_errors
        self.online = False  # whether batches hold collected transitions too; the loop sets it before each update

    def __len__(self) -> int:
        return len(self.collected)

    @property
    def capacity(self) -> int:
        """The number of collected transitions that fit into memory."""
        return self.collected.capacity

    def add(self, step: Step) -> None:
        """Stores one vector step among the collected transitions."""
        self.collected.add(step)

    def sample(self, size: int) -> Batch:
        """Returns `size` collected and `size` recorded transitions, or `size` recorded ones if not `online`."""
        recorded = self.recorded.sample(size)
        recorded["shown"] = torch.ones_like(recorded["weight"])
        if not self.online:
            return recorded
        collected = self.collected.sample(size)
        collected["shown"] = torch.zeros_like(collected["weight"])
        batch: Batch = joined([collected, recorded])
        batch["weight"] = 2 * batch["weight"]
        return batch

    def all(self) -> Batch:
        """Returns all stored transitions, the collected ones first."""
        batch: Batch = joined([self.collected.all(), self.recorded.all()])
        return batch

    def since(self, flat_index: int) -> Batch:
        """Returns the collected transitions from this flat index on, oldest first."""
        return self.collected.since(flat_index)

    def of_action(self, action: int, size: int | None = None) -> Batch:
        """Returns transitions with this discrete action: `size` drawn ones of each buffer, or all of both."""
        batch: Batch = joined([self.collected.of_action(action, size), self.recorded.of_action(action, size)])
        return batch

    def feedback(self, batch: Batch, error: Tensor) -> None:
        """Passes the errors [batch] that the agent returned to the buffers from which their rows were sampled."""
        if not self.online:
            self.recorded.feedback({"index": batch["index"]}, error)
            return
        collected_index, recorded_index = batch["index"].chunk(2)
        collected_error, recorded_error = error.chunk(2)
        self.collected.feedback({"index": collected_index}, collected_error)
        self.recorded.feedback({"index": recorded_index}, recorded_error)

    def clear(self) -> None:
        """Removes all transitions from both buffers."""
        self.collected.clear()
        self.recorded.clear()
