"""Operations on observations and batches: trees whose leaves are arrays or tensors and whose branches are dicts.

Those that need torch are in `tensors.py`, so that the workers of environments do without it.
"""

from collections.abc import Callable, Iterator
from typing import Any

from rlrun.types import Obs


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
    found: dict[str, object] = {}
    for key, value in tree.items():
        found |= dotted(f"{name}.{key}", value)
    return found


def get(tree: Any, path: tuple[str, ...]) -> Any:
    """Returns the part of a tree at the keys in `path`; the whole tree for ()."""
    for key in path:
        tree = tree[key]
    return tree


def put(tree: Obs, path: tuple[str, ...], value: Obs) -> Obs:
    """Returns the tree with another part at the keys in `path`, which must exist. The given tree stays as it is."""
    if not path:
        return value
    key, *rest = path
    if not isinstance(tree, dict):
        raise TypeError(f"no {key!r} in {type(tree).__name__}")
    return tree | {key: put(tree[key], tuple(rest), value)}


def index(tree: Any, where: object) -> Any:
    """Returns leaf[where] of every leaf."""
    if isinstance(tree, dict):
        return {key: index(value, where) for key, value in tree.items()}
    return tree[where]
