"""Preallocated memory [capacity, ...] in which new rows overwrite the oldest ones."""

from collections.abc import Container
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlrun import memory
from rlrun.buffers.compressed import Compressed
from rlrun.buffers.packing import Layout
from rlrun.module import Module


class RingBuffer(Module):
    """Named fields of `capacity` rows. Row numbers are absolute: row i is stored at place i modulo capacity.

    The state dict holds `total`, but not the rows. The snapshot store copies rows with `read`, in segments, so the cost
    of a snapshot depends only on the number of new rows.

    compressed: names of the fields, all of images, that are stored as LZ4 blocks. setting: the config key that the
    error names if the rows of the other fields do not fit into memory.
    """

    def __init__(
        self,
        capacity: int,
        fields: Layout,
        device: torch.device,
        setting: str = "algo.buffer.capacity",
        compressed: Container[str] = (),
    ):
        super().__init__()
        self.capacity = capacity
        self.total = 0  # rows appended so far
        row_bytes = 0
        for name, (shape, dtype) in fields.items():
            if name not in compressed:
                row_bytes += torch.Size(shape).numel() * dtype.itemsize
        memory.check_fits(setting, row_bytes * capacity, device)
        self.memory: dict[str, Any] = {}  # tensors, or Compressed
        for name, (shape, dtype) in fields.items():
            if name in compressed:
                self.memory[name] = Compressed((capacity, *shape))
            else:
                self.memory[name] = _zeros((capacity, *shape), dtype, device)

    @property
    def first(self) -> int:
        """The absolute number of the oldest row in memory."""
        return max(0, self.total - self.capacity)

    @property
    def row_bytes(self) -> float:
        """The memory of one row in bytes; of compressed fields the mean of the rows so far."""
        size = 0.0
        for field in self.memory.values():
            if isinstance(field, Compressed):
                size += field.row_bytes(min(self.total, self.capacity))
            else:
                size += field.nbytes / self.capacity
        return size

    def append(self) -> int:
        """Appends one row and returns its place in memory; the caller writes its values there."""
        place = self.total % self.capacity
        self.total += 1
        return place

    def select(self, name: str, index: Tensor) -> Tensor:
        """Returns entries of a field [capacity, num_envs, ...] at the flat indices place * num_envs + env."""
        field = self.memory[name]
        if isinstance(field, Compressed):
            return field.select(index).to(index.device)
        entries: Tensor = field.flatten(0, 1).index_select(0, index)
        return entries

    def read(self, lo: int, hi: int) -> dict[str, Tensor]:
        """Returns a copy of rows lo to hi (exclusive) on the CPU; every field [hi - lo, ...]."""
        places = torch.arange(lo, hi) % self.capacity
        rows = {}
        for name, field in self.memory.items():
            rows[name] = field[places.to(field.device)].cpu()
        return rows

    def write(self, lo: int, rows: dict[str, Tensor]) -> None:
        """Writes rows that `read` returned, starting at row lo."""
        for name, values in rows.items():
            places = torch.arange(lo, lo + len(values)) % self.capacity
            field = self.memory[name]
            field[places.to(field.device)] = values.to(field.device)

    def get_extra_state(self) -> dict[str, object]:
        return {"total": self.total}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.total = state["total"]


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    # torch.zeros writes the whole memory at once; np.zeros lets the system allocate pages when they are first written
    if dtype == torch.bfloat16:  # which NumPy lacks
        return torch.from_numpy(np.zeros(shape, np.int16)).view(dtype)
    numpy_dtype = torch.empty(0, dtype=dtype).numpy().dtype
    return torch.from_numpy(np.zeros(shape, numpy_dtype))
