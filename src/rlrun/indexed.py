"""Tensors stored as rows and the index of the row of each entry, so that a row that occurs twice is stored once."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from rlrun.nested import mapped
from rlrun.types import Batch

OPERATORS = ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "floordiv", "rfloordiv", "mod", "rmod",
             "pow", "rpow", "matmul", "neg", "pos", "abs", "invert", "and", "rand", "or", "ror", "xor", "rxor",
             "lt", "le", "gt", "ge", "eq", "ne")  # fmt: skip


HALVES = (torch.float16, torch.bfloat16)  # types in which rows of floats are stored to save memory


class Indexed:
    """The tensor rows[index], [*leading, ...], which is computed whenever it is used.

    rows [rows, ...] holds every stored row once. index [*leading] names the row of each entry; if `stacked`, index
    [*leading, stack] names the rows of which an entry is made, such as the frames of a stacked image. The entries of
    rows with 16 bits (`HALVES`) are float32.

    Selecting and reshaping along leading dimensions returns an `Indexed` with the same rows. All other methods and
    functions of torch, and the operators of arithmetic, logic and comparison, compute the tensor first.
    """

    def __init__(self, rows: Tensor, index: Tensor, stacked: bool = False):
        self.rows = rows
        self.index = index
        self.stacked = stacked

    def tensor(self) -> Tensor:
        """Returns the tensor, newly allocated."""
        if self.index.dim() == 1:  # minibatches, which need neither `flatten` nor `view`
            return self.rows.index_select(0, self.index).to(self.dtype)
        rows = self.rows.index_select(0, self.index.flatten())
        return rows.view(self.shape).to(self.dtype)

    @property
    def shape(self) -> torch.Size:
        return self.index.shape + self.rows.shape[1:]

    @property
    def dtype(self) -> torch.dtype:
        if self.rows.dtype in HALVES:
            return torch.float32
        return self.rows.dtype

    @property
    def device(self) -> torch.device:
        return self.rows.device

    @property
    def num_leading(self) -> int:
        """Number of dimensions that the index has for entries, without the dimension of a stack."""
        return self.index.dim() - int(self.stacked)

    def dim(self) -> int:
        return len(self.shape)

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        return f"Indexed({tuple(self.shape)}, {self.dtype}, {len(self.rows)} rows)"

    def __getitem__(self, where: Any) -> "Tensor | Indexed":
        places = where if isinstance(where, tuple) else (where,)
        if len(places) > self.num_leading or any(place is None or place is Ellipsis for place in places):
            return self.tensor()[where]
        return self._with(self.index[where])

    def index_select(self, dim: int, where: Tensor) -> "Tensor | Indexed":
        if 0 <= dim < self.num_leading:
            return self._with(self.index.index_select(dim, where))
        return self.tensor().index_select(dim, where)

    def flatten(self, start: int = 0, end: int = -1) -> "Tensor | Indexed":
        if 0 <= start <= end < self.num_leading:
            return self._with(self.index.flatten(start, end))
        return self.tensor().flatten(start, end)

    def unflatten(self, dim: int, sizes: Sequence[int]) -> "Tensor | Indexed":
        if 0 <= dim < self.num_leading:
            return self._with(self.index.unflatten(dim, sizes))
        return self.tensor().unflatten(dim, sizes)

    def transpose(self, dim: int, other: int) -> "Tensor | Indexed":
        if min(dim, other) >= 0 and max(dim, other) < self.num_leading:
            return self._with(self.index.transpose(dim, other))
        return self.tensor().transpose(dim, other)

    def _with(self, index: Tensor) -> "Indexed":
        return Indexed(self.rows, index, self.stacked)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.tensor(), name)

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., object], types: object, args: object = (), kwargs: dict[str, object] | None = None
    ) -> Any:
        return function(*dense(args), **dense(kwargs or {}))


def _operator(name: str) -> Callable[..., object]:
    def operate(self: Indexed, *others: object) -> Any:
        return getattr(self.tensor(), name)(*dense(others))

    return operate


for _name in OPERATORS:
    setattr(Indexed, f"__{_name}__", _operator(f"__{_name}__"))


def dense(tree: object) -> Any:
    """Returns a tree of dicts, lists and tuples in which every `Indexed` is replaced by its tensor."""
    if isinstance(tree, Indexed):
        return tree.tensor()
    if isinstance(tree, dict):
        return {key: dense(part) for key, part in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(map(dense, tree))
    return tree


def closed(tree: Batch) -> Batch:
    """Returns a tree in which every `Indexed` is a list of its parts, as snapshots can hold it."""
    return mapped(lambda leaf: [leaf.rows, leaf.index, leaf.stacked] if isinstance(leaf, Indexed) else leaf, tree)


def opened(tree: Batch) -> Batch:
    """Returns the tree of which `closed` was made."""
    return mapped(lambda leaf: Indexed(*leaf) if isinstance(leaf, list) else leaf, tree)


def num_bytes(tree: object) -> int:
    """Returns the memory of the tensors in a tree of dicts; memory that several leaves share is counted once."""
    sizes: dict[int, int] = {}

    def add(part: Any) -> None:
        if isinstance(part, dict):
            for value in part.values():
                add(value)
        elif isinstance(part, Indexed):
            add(part.rows)
            add(part.index)
        elif isinstance(part, Tensor):
            memory = part.untyped_storage()
            sizes[memory.data_ptr()] = memory.nbytes()

    add(tree)
    return sum(sizes.values())
