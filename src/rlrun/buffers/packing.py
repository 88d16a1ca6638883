"""Many small tensors as one float row, so that a batch is one gather instead of one per field."""

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

    def __init__(self, fields: Layout):
        self.fields, self.width = fields, 0
        self.slices: dict[str, slice] = {}
        self.columns: dict[str, slice | int] = {}  # one number for what is one
        for name, (shape, _) in fields.items():
            size = torch.Size(shape).numel()
            self.slices[name] = slice(self.width, self.width + size)
            self.columns[name] = self.slices[name] if shape else self.width
            self.width += size
        self.shapes = {name: shape for name, (shape, _) in fields.items() if len(shape) > 1}
        self.types = {name: dtype for name, (_, dtype) in fields.items() if dtype != torch.float32}

    def pack(self, values: Batch, memory: Tensor, row: int) -> None:
        """Write fields [n, *shape] into one row of a memory [rows, n, width]."""
        if memory.device.type == "cpu":
            table = memory.numpy()[row]
            for name, column in self.columns.items():
                part = values[name].numpy()
                table[:, column] = part if part.ndim < 3 else part.reshape(len(part), -1)
        else:
            parts = [values[name].reshape(memory.shape[1], -1) for name in self.fields]
            torch.cat(parts, 1, out=memory[row])

    def take(self, memory: Tensor, index: Tensor) -> Batch:
        """Rows [batch] of a memory [n, width] as fields [batch, *shape]; those of floats share their memory."""
        if memory.device.type == "cpu":
            table = memory.numpy().take(index.numpy(), 0)
            batch = {name: torch.from_numpy(table[:, column]) for name, column in self.columns.items()}
        else:
            rows = memory.index_select(0, index)
            batch = {name: rows[:, column] for name, column in self.columns.items()}
        for name, shape in self.shapes.items():
            batch[name] = batch[name].unflatten(1, shape)
        for name, dtype in self.types.items():
            batch[name] = batch[name].to(dtype)
        return batch
