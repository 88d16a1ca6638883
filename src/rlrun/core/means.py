"""Means of the metrics of updates, over the updates since the last log row."""

from typing import Any

import torch

from rlrun.functional import fused
from rlrun.module import Module
from rlrun.types import Metrics


class Means(Module):
    """Sums and counts of metrics. An update need not have every metric: each has a count of its own."""

    def __init__(self, device: torch.device | None = None) -> None:
        super().__init__()
        self.device = device  # of the metrics
        self.sums: Metrics = {}
        self.counts: dict[str, int] = {}

    @torch.no_grad()
    def add(self, metrics: Metrics) -> None:
        """Adds the metrics of one update, name -> 0-d tensor, without waiting for a GPU."""
        if not metrics:
            return
        for name, value in metrics.items():
            if not isinstance(value, torch.Tensor) or value.dim():
                shown = type(value).__name__
                if isinstance(value, torch.Tensor):
                    shown = f"tensor {[*value.shape]}"
                raise TypeError(f"the metric {name} is a {shown}; update must return 0-d tensors; do not call .item()")
            if name not in self.sums:
                self.sums[name] = torch.zeros_like(value, dtype=torch.get_default_dtype())
                self.counts[name] = 0
            self.counts[name] += 1
        fused.add_all_([self.sums[name] for name in metrics], [*metrics.values()])

    def drain(self) -> Metrics:
        """Returns the means since the last call."""
        means = {name: total / self.counts[name] for name, total in self.sums.items()}
        self.sums, self.counts = {}, {}
        return means

    def get_extra_state(self) -> dict[str, Any]:
        return {name: [float(total), self.counts[name]] for name, total in self.sums.items()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restores the state. Raises ValueError or TypeError for other types, because snapshots may be untrusted."""
        self.sums, self.counts = {}, {}
        for name, (total, count) in state.items():
            self.sums[name] = torch.tensor(float(total), device=self.device)
            self.counts[name] = int(count)


LOSSES = ("actor", "critic")


def over_epochs(epochs: list[Metrics]) -> Metrics:
    """Returns the means of the metrics of several epochs.

    With more than one epoch, also the losses of the first and of the last: `critic_first_epoch`, `critic_last_epoch`.
    They show what the update has changed.
    """
    means = Means()
    for metrics in epochs:
        means.add(metrics)
    result = means.drain()
    if len(epochs) > 1:
        for name in LOSSES:
            if name in epochs[0]:
                result[f"{name}_first_epoch"] = epochs[0][name]
                result[f"{name}_last_epoch"] = epochs[-1][name]
    return result
