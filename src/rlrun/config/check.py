"""Checks keys, types and names of settings against the composed YAML. Every fault is one line."""

import re
from collections.abc import Iterator
from typing import Any

from rlrun.config import foreign_words
from rlrun.dotted import ABSENT, Tree, lookup, paths, show
from rlrun.errors import closest, did_you_mean

# sections that accept keys not in the YAML
OPEN = ("algo.schedule", "env.kwargs", "env.wrappers", "network.actor", "network.critic")
OPEN_WHERE_GIVEN = ("algo.representation.decode",)  # as OPEN, where the YAML has the section
EXAMPLES = {"algo.schedule": "{learning_rate: {linear: {end: 0}}}"}  # what to write in place of a value
# keys that may be typed in a short form, unless the value is a section
SHORT = {"total_steps": "trainer.total_steps", "env.normalize": "env.normalize.kind"}
MISSING = "???"
STRICT_LIKENESS = 0.8  # minimum likeness (difflib, 0 to 1) of suggestions that are less probable, as in other sections
ESCAPED = re.compile(r"(?<!\\)(\\\\)*\\\$\{")  # \${ after pairs of backslashes, which stands for the text ${
REFERENCE = re.compile(r"\$\{([\w.-]+)\}")  # a value's full key; any other ${...} may call a resolver
LARGEST = 100_000  # maximum number of characters and entries in a config after references are replaced by their values


def full_key(key: str, value: Any) -> str:
    """Returns the full form of a key that the user typed with this value (a value, or the text of one)."""
    if isinstance(value, dict) or str(value).lstrip().startswith("{"):
        return key
    return SHORT.get(key, key)


def is_open(key: str, tree: Tree) -> bool:
    """Returns whether the user may add `key`, because its section is open or is {} in the YAML."""
    section = key.rpartition(".")[0]
    while section:
        known = lookup(section, tree)
        if section in OPEN or known == {} or (section in OPEN_WHERE_GIVEN and known is not ABSENT):
            return True
        section = section.rpartition(".")[0]
    return False


def faults(key: str, value: Any, tree: Tree) -> Iterator[str]:
    """Yields the faults of setting `key` to `value`: an unknown key, or a value of the wrong type."""
    if is_open(key, tree):
        return
    known = lookup(key, tree)
    if known is ABSENT:
        yield f"{key}: unknown key{nearest_key(key, tree)}"
    elif value == {} and isinstance(known, dict) and key not in OPEN and not names_parts(known):
        yield f"{key}={{}}: sets nothing"
    elif isinstance(value, dict) and isinstance(known, dict):
        for inner, item in value.items():
            yield from faults(f"{key}.{inner}", item, tree)
    elif isinstance(value, str) and "${" in value:
        return  # the type of an interpolation is only known when it is resolved
    else:
        rule = _broken_rule(value, known, key)
        if rule is not None:
            yield f"{key}={show(value)}: must be {rule}"


def fitted(value: Any, known: Any) -> Any:
    """Returns the user's value converted to the type of the value in the YAML: 1e6 to 1000000, or 1 to 1.0."""
    if isinstance(value, dict) and isinstance(known, dict):
        return {name: fitted(item, known.get(name)) for name, item in value.items()}
    if isinstance(value, list) and isinstance(known, list) and known:
        return [fitted(item, known[0]) for item in value]
    if _kind(known) is float and _kind(value) is int:
        return float(value)
    if _kind(known) is int and _kind(value) is float and value.is_integer():
        return int(value)
    return value


def refused(tree: Any, key: str = "") -> Iterator[str]:
    """Yields a fault for each value that could run code (`_target_`) or calls a resolver, as `${oc.env:HOME}` does."""
    if "_target_" in key.split("."):
        yield f"{key}: _target_ is not allowed; use registered names (rlrun list)"
    elif isinstance(tree, dict):
        for name, value in tree.items():
            yield from refused(value, f"{key}.{name}".lstrip("."))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from refused(value, f"{key}.{index}")
    elif isinstance(tree, str) and "${" in REFERENCE.sub(" ", ESCAPED.sub(" ", tree)):
        yield f"{key}: {show(tree)} is not allowed; write the value itself, or refer to one, like ${{algo.gamma}}"


def refers(tree: Any) -> bool:
    """Returns whether a config holds a reference to another value."""
    if isinstance(tree, dict):
        return any(map(refers, tree.values()))
    if isinstance(tree, list):
        return any(map(refers, tree))
    return isinstance(tree, str) and "${" in tree


def not_plain(tree: Any, key: str = "") -> Iterator[str]:
    """Yields a fault for each value that YAML reads as something else than a config may hold, such as a date."""
    if isinstance(tree, dict):
        for name, value in tree.items():
            yield from not_plain(value, f"{key}.{name}".lstrip("."))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from not_plain(value, f"{key}.{index}")
    elif tree is not None and not isinstance(tree, bool | int | float | str):
        yield f"{key}: {tree}: must be a number, a text, true, false or null"


def expands(tree: Tree) -> bool:
    """Returns whether a config would exceed LARGEST if its references were replaced by their values.

    A list of references to lists of references grows with every level.
    """
    sizes: dict[str, int] = {}

    def size(value: Any) -> int:
        if isinstance(value, dict):
            return 1 + sum(map(size, value.values()))
        if isinstance(value, list):
            return 1 + sum(map(size, value))
        if isinstance(value, str):
            return 1 + len(value) + sum(map(size_at, REFERENCE.findall(value)))
        return 1

    def size_at(key: str) -> int:
        if key not in sizes:
            sizes[key] = 0  # of a reference to itself, which OmegaConf refuses
            sizes[key] = size(lookup(key, tree))
        return sizes[key]

    return size(tree) > LARGEST


def missing(tree: Any, key: str = "") -> Iterator[str]:
    """Yields a fault for every value that the user must set (`???` in the YAML) and has not."""
    if isinstance(tree, dict):
        for name, value in tree.items():
            yield from missing(value, f"{key}.{name}".lstrip("."))
    elif tree == MISSING:
        yield f"{key}: missing; give it a value with {key}=..."


def same_meaning(name: str, tree: Tree) -> list[str]:
    """Returns the keys that correspond to another library's name, some with a note in brackets.

    For other names, returns the first key whose last part is `name`, or [].
    """
    found = foreign_words.counterparts(name, lambda key: lookup(key, tree) is not ABSENT)
    if found:
        return found
    for path in paths(tree):
        if path.rpartition(".")[2] == name:
            return [path]
    return []


def nearest_key(key: str, tree: Tree) -> str:
    """Returns the end of a message about an unknown key: a suggestion, or why there is no such key.

    Suggests a key of the same meaning, else one with a similar name in the same section, else in any section.
    """
    section, _, name = key.rpartition(".")
    found = same_meaning(name, tree)
    if found:
        return did_you_mean(" or ".join(found))
    reason = foreign_words.explanation(key)
    if reason:
        return reason
    home = tree
    if section:
        home = lookup(section, tree)
    if isinstance(home, dict):
        near = closest(name, home)
        if near is not None:
            return did_you_mean(f"{section}.{near}".lstrip("."))
    by_name: dict[str, str] = {}
    for path in sorted(paths(tree), key=lambda path: not path.startswith("algo.")):  # the algorithm's keys first
        by_name.setdefault(path.rpartition(".")[2], path)
    near = closest(name, by_name, STRICT_LIKENESS)
    if near is None and section == "env":
        return f"; to set an argument of the environment's constructor, type env.kwargs.{name}"
    if near is not None:
        return did_you_mean(by_name[near])
    if section and lookup(section, tree) is ABSENT:
        return nearest_key(section, tree)
    return ""


def _broken_rule(value: Any, known: Any, key: str) -> str | None:
    """Returns what the value must be, or None if it is valid.

    The value must be null or have the type of `known`, the value in the YAML. If `known` is null, ??? or a reference,
    any value is valid.
    """
    if value is None or known is None or known == MISSING:
        return None
    if isinstance(known, str) and "${" in known:
        return None
    if isinstance(known, list):
        return _broken_list_rule(value, known)
    if not isinstance(known, dict):
        return _kind_fault(value, known)
    if isinstance(value, dict):
        return None
    return f"a section{_inside(key, value, known)}"


def _broken_list_rule(value: Any, known: list[Any]) -> str | None:
    if not isinstance(value, list):
        return f"a list: [{show(value)}]"
    kinds = set(map(_kind, known))
    if len(kinds) == 1 and any(_kind_fault(item, known[0]) for item in value):
        return f"a list of {_PLURAL[kinds.pop()]}"
    return None


def _inside(key: str, value: Any, known: Tree) -> str:
    """Returns the end of the message that `key` is a section, which says what to write instead of `value`.

    The keys of a section that is empty or holds only sections, such as `{linear: {}}`, are names of parts.
    """
    if key in EXAMPLES:
        return f", such as {EXAMPLES[key]}"
    if isinstance(value, str) and names_parts(known):
        return f"; did you mean {key}.{value}={{}}?"
    if known:
        return f", one of its keys: {', '.join(f'{key}.{name}' for name in known)}"
    return ""


def names_parts(section: Tree) -> bool:
    """Returns whether the keys of a section are names of parts, as in `{linear: {}}`. Setting it to {} removes them."""
    return all(isinstance(item, dict) for item in section.values())


_SINGULAR = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
_PLURAL = {bool: "true or false", int: "whole numbers", float: "numbers", str: "texts", list: "lists", dict: "sections"}


def _kind(value: Any) -> type:
    for kind in (bool, int, float, list, dict):
        if isinstance(value, kind):
            return kind
    return str


def _kind_fault(value: Any, known: Any) -> str | None:
    kind = _kind(value)
    wanted = _kind(known)
    if wanted is float and kind is list and not _broken_list_rule(value, [known]):
        return None  # a setting may have one number for each dimension of the action; its Config says whether it does
    if kind is wanted or (wanted is float and kind is int):
        return None
    if wanted is int and kind is float and float(value).is_integer():
        return None
    return f"{_SINGULAR.get(wanted, _PLURAL[wanted])}, like {show(known)}"
