"""Many small tensors as one float row, so that a batch is one gather instead of one per field."""

import math
from typing import Any

import torch
from gymnasium import Space, spaces
from torch import Tensor

from rlrun.errors import ConfigError
from rlrun.types import Batch

Layout = dict[str, tuple[tuple[int, ...], torch.dtype]]  # field -> shape, dtype
EXACT_INTEGERS = 2**24  # the largest range of integers that float32 holds


def layout(name: str, space: Space) -> Layout:
    """The fields of a space; Dict entries become `name.key`. Integers must fit a float32 exactly."""
    match space:
        case spaces.Dict():
            return {field: kind for key, part in space.items() for field, kind in layout(f"{name}.{key}", part).items()}
        case spaces.Discrete() if space.n <= EXACT_INTEGERS:
            return {name: ((), torch.int64)}
        case spaces.MultiDiscrete() if int(space.nvec.max()) <= EXACT_INTEGERS:
            return {name: (space.shape, torch.int64)}
        case spaces.MultiBinary():
            return {name: (space.shape, torch.int8)}
        case spaces.Box() if space.dtype.kind == "f" or space.dtype.itemsize <= 2:
            kind = torch.float32 if space.dtype.kind == "f" else getattr(torch, str(space.dtype))
            return {name: (space.shape, kind)}
    raise ConfigError(f"algo.buffer: {space} is not supported, for float32 cannot hold its numbers")


def flatten(name: str, value: Any) -> Batch:
    """A possibly nested value by dotted names."""
    if not isinstance(value, dict):
        return {name: value}
    return {field: part for key, inner in value.items() for field, part in flatten(f"{name}.{key}", inner).items()}


def nest(batch: Batch, name: str, space: Space) -> Any:
    """The value of a space that `flatten` took apart."""
    if not isinstance(space, spaces.Dict):
        return batch[name]
    return {key: nest(batch, f"{name}.{key}", part) for key, part in space.items()}


class Packing:
    """Where each field lies in a row of float32. A CPU packs and picks with NumPy: torch takes longer for so little."""

    memory: Tensor  # [rows, n, width]
    rows: Tensor  # [rows * n, width], the same
    table: Any  # the same for NumPy, on a CPU

    def __init__(self, fields: Layout):
        self.fields, self.width = fields, 0
        self.slices: dict[str, slice] = {}
        for name, (shape, _) in fields.items():
            size = math.prod(shape)
            self.slices[name] = slice(self.width, self.width + size)
            self.width += size
        # one number for what is one
        self.columns = [
            (name, self.slices[name] if shape else self.slices[name].start) for name, (shape, _) in fields.items()
        ]
        self.shapes = {name: shape for name, (shape, _) in fields.items() if len(shape) > 1}
        self.types = {name: dtype for name, (_, dtype) in fields.items() if dtype != torch.float32}

    def hold(self, memory: Tensor) -> None:
        """Write to and pick from a memory [rows, n, width] from now on."""
        self.memory, self.rows = memory, memory.view(-1, self.width)
        self.table = self.rows.numpy() if memory.device.type == "cpu" else None

    def pack(self, values: Batch, row: int) -> None:
        """Write fields [n, *shape] into one row."""
        n = self.memory.shape[1]
        if self.table is None:
            torch.cat([values[name].reshape(n, -1) for name in self.fields], 1, out=self.memory[row])
            return
        table = self.table[row * n : row * n + n]
        for name, column in self.columns:
            part = values[name].numpy()
            table[:, column] = part if part.ndim < 3 else part.reshape(n, -1)

    def take(self, index: Tensor) -> Batch:
        """Fields [batch, *shape] of rows among [rows * n]; those of floats share their memory."""
        if self.table is None:
            rows = self.rows.index_select(0, index)
            batch = {name: rows[:, column] for name, column in self.columns}
        else:
            table = self.table.take(index.numpy(), 0)
            batch = {name: torch.from_numpy(table[:, column]) for name, column in self.columns}
        for name, shape in self.shapes.items():
            batch[name] = batch[name].unflatten(1, shape)
        for name, dtype in self.types.items():
            batch[name] = batch[name].to(dtype)
        return batch
