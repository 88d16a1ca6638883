"""The plainest ring there is: what the store must be able to save and fill."""

import torch
from torch import Tensor


class MemoryRing:
    def __init__(self, capacity: int, width: int = 3):
        self.capacity, self.total = capacity, 0
        self.data = {
            "obs": torch.zeros(capacity, width),
            "action": torch.zeros(capacity, dtype=torch.int64),
            "frame": torch.zeros(capacity, 2, 2, dtype=torch.uint8),
            "done": torch.zeros(capacity, dtype=torch.bool),
        }

    def extend(self, count: int) -> None:
        """Append rows whose content is a function of their absolute number."""
        number = torch.arange(self.total, self.total + count)
        width = self.data["obs"].shape[1]
        rows = {
            "obs": torch.sin(number[:, None] * 0.7 + torch.arange(width)),
            "action": number * 7,
            "frame": (number[:, None, None] * 13 + torch.arange(4).reshape(2, 2)).to(torch.uint8),
            "done": number % 5 == 0,
        }
        self.write(self.total, rows)

    def read(self, lo: int, hi: int) -> dict[str, Tensor]:
        return {name: column[self._places(lo, hi)] for name, column in self.data.items()}

    def write(self, lo: int, rows: dict[str, Tensor]) -> None:
        hi = lo + len(rows["obs"])
        for name, column in self.data.items():
            column[self._places(lo, hi)] = rows[name]
        self.total = hi

    def _places(self, lo: int, hi: int) -> Tensor:
        return torch.arange(lo, hi) % self.capacity

    def alive(self) -> dict[str, Tensor]:
        return self.read(max(0, self.total - self.capacity), self.total)
