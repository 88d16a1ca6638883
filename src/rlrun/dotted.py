"""Values of nested dicts by dotted keys, such as `algo.gamma`, and how a user types them."""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

Tree = dict[str, Any]

ABSENT = object()


def lookup(key: str, tree: Mapping[str, Any]) -> Any:
    """Returns the value at a dotted key, or ABSENT."""
    value: Any = tree
    for part in key.split("."):
        if not isinstance(value, dict) or part not in value:
            return ABSENT
        value = value[part]
    return value


def put(key: str, value: Any, tree: Tree) -> None:
    """Sets the value at a dotted key, in place. Sections that are missing are added."""
    *sections, name = key.split(".")
    for section in sections:
        tree = tree.setdefault(section, {})
    tree[name] = value


def replaced(tree: Mapping[str, Any], values: Mapping[str, Any]) -> Tree:
    """Returns a copy of a tree with other values at dotted keys."""
    changed = copy.deepcopy(dict(tree))
    for key, value in values.items():
        put(key, value, changed)
    return changed


def leaves(tree: Tree, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the dotted key and the value of every setting. An empty section counts as a value."""
    for name, value in tree.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def paths(tree: Tree, prefix: str = "") -> Iterator[str]:
    """Yields the dotted keys of all sections and values."""
    for name, value in tree.items():
        yield f"{prefix}{name}"
        if isinstance(value, dict):
            yield from paths(value, f"{prefix}{name}.")


def show(value: Any) -> str:
    """Returns a value as the user would type it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {show(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(show, value)) + "]"
    return str(value)
