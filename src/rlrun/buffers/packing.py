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
    """Returns the fields of a space; Dict entries become `name.key`. Integers must fit a float32 exactly."""
    match space:
        case spaces.Dict():
            fields: Layout = {}
            for key, part in space.items():
                fields |= layout(f"{name}.{key}", part)
            return fields
        case spaces.Discrete() if space.n <= EXACT_INTEGERS:
            return {name: ((), torch.int64)}
        case spaces.MultiDiscrete() if int(space.nvec.max()) <= EXACT_INTEGERS:
            return {name: (space.shape, torch.int64)}
        case spaces.MultiBinary():
            return {name: (space.shape, torch.int8)}
        case spaces.Box() if space.dtype.kind == "f":
            return {name: (space.shape, torch.float32)}
        case spaces.Box() if space.dtype.itemsize <= 2:
            return {name: (space.shape, getattr(torch, str(space.dtype)))}
    raise ConfigError(f"algo.buffer: {space} is not supported, for float32 cannot hold its numbers")


def nest(batch: Batch, name: str, space: Space) -> Any:
    """Returns the value of a space from its fields by dotted names, as `nested.dotted` gives them."""
    if not isinstance(space, spaces.Dict):
        return batch[name]
    value = {}
    for key, part in space.items():
        value[key] = nest(batch, f"{name}.{key}", part)
    return value


class Packing:
    """Where each field lies in a row of float32. A CPU packs and picks with NumPy: torch takes longer for so little."""

    memory: Tensor  # [rows, n, width]
    rows: Tensor  # [rows * n, width], the same
    table: Any  # the same for NumPy, on a CPU

    def __init__(self, fields: Layout):
        self.fields = fields
        self.width = 0
        self.slices: dict[str, slice] = {}
        self.columns: list[tuple[str, slice | int]] = []  # a field without dimensions is one column
        self.shapes: dict[str, tuple[int, ...]] = {}  # of fields that are no vectors
        self.types: dict[str, torch.dtype] = {}  # of fields that are no float32
        for name, (shape, dtype) in fields.items():
            self._add_field(name, shape, dtype)

    def _add_field(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        start = self.width
        self.width += math.prod(shape)
        self.slices[name] = slice(start, self.width)
        if shape:
            self.columns.append((name, self.slices[name]))
        else:
            self.columns.append((name, start))
        if len(shape) > 1:
            self.shapes[name] = shape
        if dtype != torch.float32:
            self.types[name] = dtype

    def hold(self, memory: Tensor) -> None:
        """Writes to and picks from a memory [rows, n, width] from now on."""
        self.memory = memory
        self.rows = memory.view(-1, self.width)
        self.table = None
        if memory.device.type == "cpu":
            self.table = self.rows.numpy()

    def pack(self, values: Batch, row: int) -> None:
        """Writes fields [n, *shape] into one row."""
        n = self.memory.shape[1]
        if self.table is None:
            parts = [values[name].reshape(n, -1) for name in self.fields]
            torch.cat(parts, 1, out=self.memory[row])
            return
        start = row * n
        table = self.table[start : start + n]
        for name, column in self.columns:
            part = values[name].numpy()
            if part.ndim >= 3:
                part = part.reshape(n, -1)
            table[:, column] = part

    def take(self, index: Tensor) -> Batch:
        """Returns fields [batch, *shape] of rows among [rows * n]; those of floats share their memory."""
        batch: Batch = {}
        if self.table is None:
            rows = self.rows.index_select(0, index)
            for name, column in self.columns:
                batch[name] = rows[:, column]
        else:
            table = self.table.take(index.numpy(), 0)
            for name, column in self.columns:
                batch[name] = torch.from_numpy(table[:, column])
        for name, shape in self.shapes.items():
            batch[name] = batch[name].unflatten(1, shape)
        for name, dtype in self.types.items():
            batch[name] = batch[name].to(dtype)
        return batch
