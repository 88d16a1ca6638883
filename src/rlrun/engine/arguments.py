"""Arguments and results of kernels: tensors in nested dicts, lists and tuples."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch import Tensor


def parts(tree: Any) -> Iterable[Any]:
    """The values of a dict, list or tuple; nothing for anything else."""
    if isinstance(tree, dict):
        return tree.values()
    if isinstance(tree, tuple | list):
        return tree
    return ()


def leaves(tree: Any) -> list[Tensor]:
    """The tensors of a tree, in order."""
    if isinstance(tree, Tensor):
        return [tree]
    found = []
    for part in parts(tree):
        found += leaves(part)
    return found


def only_tensors(tree: Any) -> bool:
    """Whether every leaf of a tree is a tensor."""
    if isinstance(tree, dict | tuple | list):
        return all(map(only_tensors, parts(tree)))
    return isinstance(tree, Tensor)


def mapped(tree: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A tree with every tensor changed, in the order in which `flatten` visits them."""
    if isinstance(tree, Tensor):
        return change(tree)
    if isinstance(tree, dict):
        return {key: mapped(part, change) for key, part in tree.items()}
    if isinstance(tree, tuple | list):
        return type(tree)(mapped(part, change) for part in tree)
    return tree


def flatten(value: Any, shapes: list[Any], tensors: list[Tensor]) -> None:
    """Take arguments apart: append what a recording depends on to `shapes`, and the tensors that it reads in each call
    to `tensors`."""
    if isinstance(value, Tensor):
        shapes.append(value.shape)
        shapes.append(value.dtype)
        tensors.append(value)
    elif isinstance(value, dict):
        shapes.append(tuple(value))
        for part in value.values():
            flatten(part, shapes, tensors)
    elif isinstance(value, tuple | list):
        shapes.append(len(value))
        for part in value:
            flatten(part, shapes, tensors)
    else:
        shapes.append((type(value), value))


def rows(tree: Any) -> Iterator[int]:
    """The length of the first dimension of every tensor that has one."""
    if isinstance(tree, Tensor):
        if tree.dim():
            yield len(tree)
    else:
        for part in parts(tree):
            yield from rows(part)
