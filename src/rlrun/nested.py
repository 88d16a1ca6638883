"""Operations on observations and batches: trees whose leaves are arrays or tensors and whose branches are dicts.

Those that need torch are in `tensors.py`, so that the workers of environments do without it.
"""

from collections.abc import Callable, Iterator
from typing import Any


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
