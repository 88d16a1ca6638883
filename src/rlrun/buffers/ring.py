"""Preallocated memory [time, ...] that overwrites its oldest rows. Snapshots read and write it by absolute row."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlrun import memory
from rlrun.module import Module


class Ring(Module):
    """Named fields of `capacity` rows. Row numbers are absolute: row i lies at i modulo capacity.

    The rows themselves are no part of the state dict: the snapshot store moves them in segments, so that its cost
    follows the new rows. `total` is. `setting` says what to change where they do not fit into memory.
    """

    def __init__(
        self,
        capacity: int,
        fields: dict[str, tuple[tuple[int, ...], torch.dtype]],
        device: torch.device,
        setting: str = "algo.buffer.capacity",
    ):
        super().__init__()
        self.capacity, self.total = capacity, 0
        row = sum(torch.Size(shape).numel() * dtype.itemsize for shape, dtype in fields.values())
        memory.check_fits(setting, row * capacity, device)
        self.memory = {name: _zeros((capacity, *shape), dtype, device) for name, (shape, dtype) in fields.items()}

    @property
    def first(self) -> int:
        """The oldest row still there."""
        return max(0, self.total - self.capacity)

    def append(self) -> int:
        """Make room for one row; its place in the memory. The caller fills it."""
        place = self.total % self.capacity
        self.total += 1
        return place

    def read(self, lo: int, hi: int) -> dict[str, Tensor]:
        """Rows lo to hi, copied to the CPU; every field [hi - lo, ...]."""
        rows = torch.arange(lo, hi) % self.capacity
        return {name: field[rows.to(field.device)].cpu() for name, field in self.memory.items()}

    def write(self, lo: int, rows: dict[str, Tensor]) -> None:
        """Put rows back where `read` found them."""
        for name, values in rows.items():
            places = torch.arange(lo, lo + len(values)) % self.capacity
            field = self.memory[name]
            field[places.to(field.device)] = values.to(field.device)

    def get_extra_state(self) -> dict[str, Any]:
        return {"total": self.total}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.total = state["total"]


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    # torch writes its zeros; NumPy takes pages from the system that are zero until they are filled
    return torch.from_numpy(np.zeros(shape, torch.empty(0, dtype=dtype).numpy().dtype))
