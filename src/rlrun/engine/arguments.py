"""Functions on the arguments and results of kernels: trees of nested dicts, lists and tuples with tensors as leaves."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch import Tensor

SEQUENCE = (tuple, list)  # isinstance is faster with a tuple of types than with a union


def parts(tree: object) -> Iterable[object]:
    """Returns the values of a dict, list or tuple; () for anything else."""
    if isinstance(tree, dict):
        return tree.values()
    if isinstance(tree, SEQUENCE):
        return tree
    return ()


def leaves(tree: object) -> list[Tensor]:
    """Returns the tensors of a tree, in the order in which `flatten` visits them."""
    if isinstance(tree, Tensor):
        return [tree]
    found = []
    for part in parts(tree):
        found += leaves(part)
    return found


def only_tensors(tree: object) -> bool:
    """Returns whether every leaf of a tree is a tensor."""
    if isinstance(tree, dict | tuple | list):
        return all(map(only_tensors, parts(tree)))
    return isinstance(tree, Tensor)


def mapped(tree: object, change: Callable[[Tensor], Tensor]) -> Any:
    """Returns a tree with `change` applied to every tensor, in the order in which `flatten` visits them."""
    if isinstance(tree, Tensor):
        return change(tree)
    if isinstance(tree, dict):
        return {key: mapped(part, change) for key, part in tree.items()}
    if isinstance(tree, tuple | list):
        return type(tree)(mapped(part, change) for part in tree)
    return tree


def flatten(values: Iterable[object], shapes: list[object], tensors: list[Tensor]) -> None:
    """Appends the tensors among arguments to `tensors`, and to `shapes` what must be equal for the same recording.

    The latter are shapes and dtypes of tensors, keys and lengths of containers, types and values of other arguments.
    """
    for value in values:
        if isinstance(value, Tensor):
            shapes += value.shape, value.dtype
            tensors.append(value)
        elif isinstance(value, dict):
            shapes.append(tuple(value))
            flatten(value.values(), shapes, tensors)
        elif isinstance(value, SEQUENCE):
            shapes.append(len(value))
            flatten(value, shapes, tensors)
        else:
            shapes.append((type(value), value))


def rows(tree: object) -> Iterator[int]:
    """Yields the length of the first dimension of every tensor in a tree; scalars are skipped."""
    if isinstance(tree, Tensor):
        if tree.shape:
            yield tree.shape[0]  # len() takes three times as long
    else:
        for part in parts(tree):
            yield from rows(part)
