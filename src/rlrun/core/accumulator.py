"""Collects what the next log row reports: metrics of updates, logged numbers, measures and ended episodes."""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pydantic
import torch

from rlrun.functional import fused
from rlrun.module import Module
from rlrun.types import Episode, Metrics

LOSS = "loss/"  # prefix of the metrics of updates
CUSTOM = "custom/"  # prefix of the numbers that the user's code logs

LOSSES = ("loss/actor", "loss/critic")  # metrics whose first and last epoch are reported too

Sums = dict[str, tuple[float, int]]
"""By name: sum of the values, and their number."""

_episode = pydantic.TypeAdapter(Episode)


class Accumulator(Module):
    """Holds metrics, by their names in log rows, until the trainer takes them for the next row.

    Not every update has every metric, so each metric has a count of its own.

    device: of the metrics of updates. window: number of timesteps of the moving averages of measures. It is rounded up
    to whole log rows, at least one.
    """

    def __init__(self, device: torch.device | None = None, window: int = 1) -> None:
        super().__init__()
        self.device, self.window = device, window
        self.sums: Metrics = {}  # of the metrics of updates
        self.counts: dict[str, int] = {}
        self.logged: Sums = {}
        self.recent: Sums = {}  # measures since the last log row
        self.totals: dict[str, float] = {}  # of measures, since the start of the run
        self.rows: deque[Sums] = deque()  # measures of the latest log rows, as many as the moving average needs
        self.episodes: list[Episode] = []  # ended episodes

    @torch.no_grad()
    def add(self, metrics: Metrics) -> None:
        """Adds the metrics of one update, 0-d tensors such as `loss/critic`, without waiting for a GPU."""
        if not metrics:
            return
        for name, value in metrics.items():
            if not isinstance(value, torch.Tensor) or value.dim():
                shown = type(value).__name__
                if isinstance(value, torch.Tensor):
                    shown = f"tensor {[*value.shape]}"
                raise TypeError(f"the metric {name} is a {shown}; update must return 0-d tensors; do not call .item()")
            if name not in self.sums:
                if not name.startswith(LOSS):
                    raise ValueError(f"the metric {name} of an update must be named {LOSS}{name}, as in log rows")
                self.sums[name] = torch.zeros_like(value, dtype=torch.get_default_dtype())
                self.counts[name] = 0
            self.counts[name] += 1
        fused.add_all_([self.sums[name] for name in metrics], [*metrics.values()])

    def drain(self) -> Metrics:
        """Returns the means of the metrics of updates since the last call."""
        means = {name: total / self.counts[name] for name, total in self.sums.items()}
        self.sums, self.counts = {}, {}
        return means

    def log(self, numbers: Iterable[tuple[str, float]]) -> None:
        """Adds numbers that the user's code logs; their names have no prefix yet."""
        for name, value in numbers:
            add_to(self.logged, f"{CUSTOM}{name}", value)

    def drain_logged(self) -> dict[str, float]:
        """Returns the means of logged numbers since the last call."""
        means = {name: total / count for name, (total, count) in self.logged.items()}
        self.logged = {}
        return means

    def measure(self, measures: Mapping[str, np.ndarray]) -> None:
        """Adds what environments or agents report at one timestep, name -> [num_envs], as means over environments.

        Environments with NaN report nothing at this timestep.
        """
        for name, values in measures.items():
            known = values[values == values]
            if not len(known):
                continue
            key = f"train/{name}"
            mean = float(known.mean())
            add_to(self.recent, key, mean)
            self.totals[key] = self.totals.get(key, 0.0) + mean

    def drain_measures(self) -> dict[str, float]:
        """Returns metrics of the measures, each a mean over environments.

        `<name>`: mean per timestep since the last call, if it was reported since then. `<name>_smooth`: mean over the
        moving window, if it was reported in the window. `<name>_total`: sum since the start of the run.
        """
        if self.recent:
            self.rows.append(self.recent)
            while sum(map(timesteps, self.rows)) - timesteps(self.rows[0]) >= self.window:
                self.rows.popleft()
        values = {}
        for name, total in self.totals.items():
            if name in self.recent:
                values[name] = mean_of_measure([self.recent], name)
            if any(name in row for row in self.rows):
                values[f"{name}_smooth"] = mean_of_measure(self.rows, name)
            values[f"{name}_total"] = total
        self.recent = {}
        return values

    def drain_episodes(self) -> list[Episode]:
        """Returns the episodes that ended since the last call."""
        ended, self.episodes = self.episodes, []
        return ended

    def get_extra_state(self) -> dict[str, object]:
        return {
            "updates": {name: (float(total), self.counts[name]) for name, total in self.sums.items()},
            "logged": self.logged,
            "recent": self.recent,
            "totals": self.totals,
            "rows": [*self.rows],
            "episodes": [tuple(episode) for episode in self.episodes],
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restores the state. Raises an exception if a value has a wrong type, because snapshots may be untrusted."""
        updates = checked_sums(state["updates"])
        self.sums = {name: torch.tensor(total, device=self.device) for name, (total, _) in updates.items()}
        self.counts = {name: count for name, (_, count) in updates.items()}
        self.logged = checked_sums(state["logged"])
        self.recent = checked_sums(state["recent"])
        self.totals = {name: float(total) for name, total in state["totals"].items()}
        self.rows = deque(map(checked_sums, state["rows"]))
        self.episodes = [_episode.validate_python(tuple(episode)) for episode in state["episodes"]]


def add_to(sums: Sums, name: str, value: float) -> None:
    """Adds a value to the sum of this name, in place."""
    total, count = sums.get(name, (0.0, 0))
    sums[name] = (total + value, count + 1)


def timesteps(row: Sums) -> int:
    """Returns the number of timesteps of a log row."""
    return max(count for _, count in row.values())


def mean_of_measure(rows: Iterable[Sums], name: str) -> float:
    """Returns the mean of a measure per timestep over several log rows, of which at least one has the measure."""
    found = [row[name] for row in rows if name in row]
    return sum(total for total, _ in found) / sum(count for _, count in found)


def checked_sums(state: dict[str, Any]) -> Sums:
    """Returns the sums of a snapshot. Raises an exception if they are no sums, because snapshots may be untrusted."""
    return {str(name): (float(total), int(count)) for name, (total, count) in state.items()}


def mean_metrics(updates: Iterable[Metrics]) -> Metrics:
    """Returns the means of the metrics of several updates, such as those of the minibatches of an epoch."""
    means = Accumulator()
    for metrics in updates:
        means.add(metrics)
    return means.drain()


def at(moment: str, metrics: Metrics) -> Metrics:
    """Returns the metrics under names that end in a moment, such as `loss/phase_kl_after`."""
    return {f"{name}_{moment}": value for name, value in metrics.items()}


def epoch_metrics(epochs: list[Metrics], after: Metrics | None = None) -> Metrics:
    """Returns the means of the metrics of several epochs.

    With more than one epoch, the result also has the metrics `LOSSES` of the first and of the last epoch, such as
    `loss/critic_first_epoch` and `loss/critic_last_epoch`. They show what the update has changed. after: metrics of one
    more epoch, without gradient steps, which is the last but does not count in the means.
    """
    result = mean_metrics(epochs)
    last = after or epochs[-1]
    if last is not epochs[0]:
        for name in LOSSES:
            if name in epochs[0]:
                result[f"{name}_first_epoch"] = epochs[0][name]
                result[f"{name}_last_epoch"] = last[name]
    return result
