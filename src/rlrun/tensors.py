"""Operations on trees whose leaves are tensors and whose branches are dicts.

Leaves of rollouts may also be `Indexed`, which selecting and reshaping along time and environments keep as such.
"""

from collections.abc import Sequence
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from rlrun.nested import mapped
from rlrun.types import Discount

T = TypeVar("T")


def row(values: Discount, device: torch.device | None = None) -> float | Tensor:
    """Returns the values as a tensor [columns], for arithmetic with [..., columns]; a number stays a number."""
    if isinstance(values, tuple):
        return torch.tensor(values, device=device)
    return values


def stack(trees: Sequence[Any]) -> Any:
    """Returns trees of tensors with the same keys, stacked along a new first dimension."""
    if isinstance(trees[0], dict):
        return {key: stack([tree[key] for tree in trees]) for key in trees[0]}
    return torch.stack(list(trees))


def unstacked(tree: T) -> list[T]:
    """Returns the trees that `stack` has joined, as views."""
    if isinstance(tree, Tensor):
        return cast(list[T], list(tree.unbind(0)))
    branch = cast(dict[str, object], tree)
    parts = [unstacked(value) for value in branch.values()]
    return [cast(T, dict(zip(branch, values, strict=True))) for values in zip(*parts, strict=True)]


def joined(trees: Sequence[Any], dim: int = 0) -> Any:
    """Returns trees of tensors with the same keys, concatenated along dimension `dim`. Copies the tensors."""
    if isinstance(trees[0], dict):
        return {key: joined([tree[key] for tree in trees], dim) for key in trees[0]}
    return torch.cat(list(trees), dim)


def selected(tree: T, rows: Tensor, dim: int) -> T:
    """Returns the rows with these indices along dimension `dim` of every tensor."""
    return mapped(lambda leaf: leaf.index_select(dim, rows), tree)


def flat(tree: T) -> T:
    """Reshapes every tensor from [time, env, ...] to [time * env, ...]."""
    return mapped(lambda leaf: leaf.flatten(0, 1), tree)


def unflattened(tree: T, *shape: int) -> T:
    """Reshapes every tensor from [time * env, ...] to [*shape, ...], such as [time, env, ...]."""
    return mapped(lambda leaf: leaf.unflatten(0, shape), tree)


def on(place: torch.device | Tensor, tree: T) -> T:
    """Returns the tree with its tensors on a device, or on the device of the tensor `place`. Leaves may be lists."""
    device = place
    if isinstance(place, Tensor):
        device = place.device

    def moved(leaf: object) -> Any:
        if isinstance(leaf, list):
            return [on(device, part) for part in leaf]
        if isinstance(leaf, Tensor):
            return leaf.to(device)
        return leaf

    return mapped(moved, tree)
