"""Packs all fields of a transition into one vector of float32, so that sampling is one gather instead of one per
field."""

import math
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from numpy.typing import ArrayLike
from torch import Tensor

from rlrun.errors import ConfigError
from rlrun.spaces import MixedSpace
from rlrun.types import Batch

Shape = tuple[int, ...]
Layout = dict[str, tuple[Shape, torch.dtype]]  # field -> shape, dtype
EXACT_INTEGERS = 2**24  # float32 represents all integers up to this one


def layout(name: str, space: Space) -> Layout:
    """Returns the fields that store values of a space. The entries of a Dict space are named `name.key`.

    Floats of 64 bits are rounded. Raises ConfigError if the space has integers that float32 cannot represent.
    """
    match space:
        case spaces.Dict():
            fields: Layout = {}
            for key, subspace in space.items():
                fields |= layout(f"{name}.{key}", subspace)
            return fields
        case spaces.Discrete() if _is_exact(space.start, space.n):
            return {name: ((), torch.int64)}
        case spaces.MultiDiscrete() if _is_exact(space.start, space.nvec):
            return {name: (space.shape, torch.int64)}
        case spaces.MultiBinary():
            return {name: (space.shape, torch.int8)}
        case MixedSpace() if _is_exact(space.discrete.start, space.discrete.nvec):
            return {name: ((space.size,), torch.float32)}
        case spaces.Box() if space.dtype.kind == "f":
            return {name: (space.shape, torch.float32)}
        case spaces.Box() if space.dtype.itemsize <= 2:
            return {name: (space.shape, getattr(torch, str(space.dtype)))}
    raise ConfigError(f"algo.buffer: {space} is not supported, because float32 cannot represent all its values")


def _is_exact(start: ArrayLike, n: ArrayLike) -> bool:
    """Returns whether float32 represents all integers from start to start + n - 1, for numbers or arrays of them."""
    first = np.asarray(start)
    highest_first = EXACT_INTEGERS + 1 - np.asarray(n)  # start + n might overflow
    return bool((first >= -EXACT_INTEGERS).all() and (first <= highest_first).all())


def nest(batch: Batch, name: str, space: Space) -> Any:
    """Returns the fields `name.key` of a batch as a nested dict like the space: the inverse of `nested.dotted`."""
    if not isinstance(space, spaces.Dict):
        return batch[name]
    value = {}
    for key, subspace in space.items():
        value[key] = nest(batch, f"{name}.{key}", subspace)
    return value


class Packing:
    """Writes the fields of transitions to vectors of floats, and reads them back.

    On a CPU it uses NumPy, which is faster for small tensors, unless NumPy lacks the type of the vectors.
    """

    memory: Tensor  # [rows, n, width]: n transitions in each row; of float32, or of 16 bits if all fields are floats
    vectors: Tensor  # [rows * n, width], a view of `memory`: one vector for each transition
    table: Any  # `vectors` as a NumPy array, or None

    def __init__(self, fields: Layout):
        self.fields = fields
        self.width = 0
        self.slices: dict[str, slice] = {}
        self.columns: list[tuple[str, slice | int]] = []  # scalar fields have an index instead of a slice
        self.shapes: dict[str, tuple[int, ...]] = {}  # only of fields with 2 or more dimensions
        self.types: dict[str, torch.dtype] = {}  # only of fields that are not float32
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
        """Sets the memory [rows, n, width] that `pack` writes to and `take` reads from."""
        self.memory = memory
        self.vectors = memory.view(-1, self.width)
        self.table = None
        if memory.device.type == "cpu" and memory.dtype != torch.bfloat16:
            self.table = self.vectors.numpy()

    def pack(self, values: Batch, row: int) -> None:
        """Writes fields [n, *shape] to memory[row]."""
        n = self.memory.shape[1]
        if self.table is None:
            flat_fields = [values[name].reshape(n, -1) for name in self.fields]
            torch.cat(flat_fields, 1, out=self.memory[row])
            return
        start = row * n
        table = self.table[start : start + n]
        for name, column in self.columns:
            value = values[name].numpy()
            if value.ndim >= 3:
                value = value.reshape(n, -1)
            table[:, column] = value

    def take(self, index: Tensor) -> Batch:
        """Returns the fields [batch, *shape] of the vectors at `index`. Float32 fields are views of one tensor."""
        batch: Batch = {}
        if self.table is None:
            vectors = self.vectors.index_select(0, index).float()
            for name, column in self.columns:
                batch[name] = vectors[:, column]
        else:
            table = self.table.take(index.numpy(), 0).astype(np.float32, copy=False)
            for name, column in self.columns:
                batch[name] = torch.from_numpy(table[:, column])
        for name, shape in self.shapes.items():
            batch[name] = batch[name].unflatten(1, shape)
        for name, dtype in self.types.items():
            batch[name] = batch[name].to(dtype)
        return batch

    def field(self, name: str, index: Tensor) -> Tensor:
        """Returns one field [..., *shape] of the vectors at an index of any shape [...]."""
        shape, dtype = self.fields[name]
        values = self.vectors[:, self.slices[name]][index]
        return values.reshape(*index.shape, *shape).to(dtype)
