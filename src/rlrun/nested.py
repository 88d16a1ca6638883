"""Operations on observations and batches: trees whose leaves are arrays or tensors and whose branches are dicts.

Leaves of rollouts may also be `Indexed`, which selecting and reshaping along time and environments keep as such.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


def mapped(function: Callable[..., object], tree: object, *others: Any) -> Any:
    """Returns a tree of function(leaf, *leaves of the other trees at the same place). All trees have the same keys."""
    if isinstance(tree, dict):
        return {key: mapped(function, value, *(other[key] for other in others)) for key, value in tree.items()}
    return function(tree, *others)


def leaves(tree: object) -> Iterator[Any]:
    """Yields every array or tensor of a tree, in the order of its keys."""
    if isinstance(tree, dict):
        for part in tree.values():
            yield from leaves(part)
    else:
        yield tree


def stack(trees: Sequence[Any]) -> Any:
    """Returns trees of tensors with the same keys, stacked along a new first dimension."""
    if isinstance(trees[0], dict):
        return {key: stack([tree[key] for tree in trees]) for key in trees[0]}
    return torch.stack(list(trees))


def joined(trees: Sequence[Any]) -> Any:
    """Returns trees of tensors with the same keys, concatenated along the first dimension. Copies the tensors."""
    if isinstance(trees[0], dict):
        return {key: joined([tree[key] for tree in trees]) for key in trees[0]}
    return torch.cat(list(trees))


def dotted(name: str, tree: object) -> dict[str, Any]:
    """Returns the leaves of a tree by dotted names: {"a": x} named "obs" gives {"obs.a": x}."""
    if not isinstance(tree, dict):
        return {name: tree}
    found: dict[str, Any] = {}
    for key, value in tree.items():
        found |= dotted(f"{name}.{key}", value)
    return found


def index(tree: Any, where: Any) -> Any:
    """Returns leaf[where] of every leaf."""
    if isinstance(tree, dict):
        return {key: index(value, where) for key, value in tree.items()}
    return tree[where]


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
