"""Observations and batches: an array or tensor, or a dict of such, nested to any depth."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor


def mapped(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """`function` of every leaf, and of the leaves at the same place in equally nested trees."""
    if isinstance(tree, dict):
        return {key: mapped(function, value, *(other[key] for other in others)) for key, value in tree.items()}
    return function(tree, *others)


def leaves(tree: Any) -> Iterator[Any]:
    """Every array or tensor of a tree, in the order of its keys."""
    if isinstance(tree, dict):
        for part in tree.values():
            yield from leaves(part)
    else:
        yield tree


def stack(trees: Sequence[Any]) -> Any:
    """Equally nested trees of tensors along a new first dimension."""
    if isinstance(trees[0], dict):
        return {key: stack([tree[key] for tree in trees]) for key in trees[0]}
    return torch.stack(list(trees))


def joined(trees: Sequence[Any]) -> Any:
    """Equally nested trees of tensors, one after the other along the first dimension. A copy."""
    if isinstance(trees[0], dict):
        return {key: joined([tree[key] for tree in trees]) for key in trees[0]}
    return torch.cat(list(trees))


def dotted(name: str, tree: Any) -> dict[str, Any]:
    """The leaves of a tree by dotted names: {"a": x} named "obs" gives {"obs.a": x}."""
    if not isinstance(tree, dict):
        return {name: tree}
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        leaves |= dotted(f"{name}.{key}", value)
    return leaves


def index(tree: Any, where: Any) -> Any:
    """The same rows of every leaf."""
    if isinstance(tree, dict):
        return {key: index(value, where) for key, value in tree.items()}
    return tree[where]


def selected(tree: Any, rows: Tensor, dim: int) -> Any:
    """Rows of every tensor, by their numbers along a dimension."""
    return mapped(lambda leaf: leaf.index_select(dim, rows), tree)


def flat(tree: Any) -> Any:
    """[time, env, ...] to [time * env, ...]."""
    return mapped(lambda leaf: leaf.flatten(0, 1), tree)


def unflattened(tree: Any, *shape: int) -> Any:
    """[time * env, ...] to [time, env, ...]."""
    return mapped(lambda leaf: leaf.unflatten(0, shape), tree)


def on(place: torch.device | Tensor, tree: Any) -> Any:
    """The same tree, lists in it too, with its tensors on a device, or where a tensor is."""
    device = place.device if isinstance(place, Tensor) else place

    def moved(leaf: Any) -> Any:
        if isinstance(leaf, list):
            return [on(device, part) for part in leaf]
        return leaf.to(device) if isinstance(leaf, Tensor) else leaf

    return mapped(moved, tree)
