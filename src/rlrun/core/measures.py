"""Measures that environments report in addition to rewards, such as the regret of bandits."""

from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np

from rlrun.module import Module

Sums = dict[str, tuple[float, int]]
"""By name: sum over timesteps, and number of these timesteps."""


class Measures(Module):
    """Adds up measures. Log rows have their recent means, moving averages, and totals.

    window: number of timesteps of the moving average. It is rounded up to whole log rows, at least one.
    """

    def __init__(self, window: int):
        super().__init__()
        self.window = window
        self.recent: Sums = {}  # since the last log row
        self.totals: dict[str, float] = {}  # since the start of the run
        self.rows: deque[Sums] = deque()  # of the latest log rows, as many as the moving average needs

    def add(self, values: dict[str, np.ndarray]) -> None:
        """Adds the values of one timestep, name -> [num_envs], as their mean over environments."""
        for name, row in values.items():
            mean = float(row.mean())
            total, count = self.recent.get(name, (0.0, 0))
            self.recent[name] = (total + mean, count + 1)
            self.totals[name] = self.totals.get(name, 0.0) + mean

    def drain(self) -> dict[str, float]:
        """Returns metrics per environment: `<name>`, the mean per timestep since the last call; `<name>_smooth`, its
        moving average; `<name>_total`, the sum since the start of the run."""
        if self.recent:
            self.rows.append(self.recent)
            while sum(map(timesteps, self.rows)) - timesteps(self.rows[0]) >= self.window:
                self.rows.popleft()
        values = {}
        for name, total in self.totals.items():
            if name in self.recent:
                values[name] = mean_over([self.recent], name)
            values[f"{name}_smooth"] = mean_over(self.rows, name)
            values[f"{name}_total"] = total
        self.recent = {}
        return values

    def get_extra_state(self) -> dict[str, Any]:
        return {"recent": self.recent, "totals": self.totals, "rows": [*self.rows]}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.recent = sums(state["recent"])
        self.totals = {name: float(total) for name, total in state["totals"].items()}
        self.rows = deque(map(sums, state["rows"]))


def timesteps(row: Sums) -> int:
    """Returns the number of timesteps of a log row."""
    return max(count for _, count in row.values())


def mean_over(rows: Iterable[Sums], name: str) -> float:
    """Returns the mean of a measure per timestep over several log rows, of which at least one has the measure."""
    found = [row[name] for row in rows if name in row]
    return sum(total for total, _ in found) / sum(count for _, count in found)


def sums(state: dict[str, Any]) -> Sums:
    """Returns the sums of a snapshot. Raises ValueError or TypeError for other types: snapshots may be untrusted."""
    return {str(name): (float(total), int(count)) for name, (total, count) in state.items()}
