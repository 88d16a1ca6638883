"""Checks keys, types and names against the composed YAML. Every fault is one line."""

import difflib
import re
from collections.abc import Iterable, Iterator
from typing import Any

from rlrun.config import foreign_words

Tree = dict[str, Any]

OPEN = ("env.kwargs", "env.wrappers", "network.actor", "network.critic")  # their keys are not in the YAML
SHORT = {"total_steps": "trainer.total_steps"}  # what may be typed without its section
MISSING = "???"
MOST_EPISODES = 1_000_000  # of one evaluation
ELSEWHERE = 0.8  # likeness from which a key of another section is suggested
ABSENT = object()


def closest(word: str, words: Iterable[str], likeness: float = 0.6) -> str | None:
    """The word with the nearest spelling, by difflib's measure of likeness from 0 to 1; None if none is near."""
    by_case = {known.lower(): known for known in words}
    near = difflib.get_close_matches(word.lower(), by_case, n=1, cutoff=likeness)
    if near:
        return by_case[near[0]]
    return None


def nearest(word: str, words: Iterable[str]) -> str:
    """`; did you mean x?`, or nothing where no word is near."""
    return did_you_mean(closest(word, words))


def did_you_mean(suggestion: str | None) -> str:
    """The end of a message that suggests a word; "" without one."""
    if suggestion:
        return f"; did you mean {suggestion}?"
    return ""


def is_open(key: str, tree: Tree) -> bool:
    """Whether new keys may be written at `key`: inside an open section, or where the YAML says `{}`."""
    section = key.rpartition(".")[0]
    while section:
        if section in OPEN or lookup(section, tree) == {}:
            return True
        section = section.rpartition(".")[0]
    return False


def lookup(key: str, tree: Tree) -> Any:
    """The value at a dotted key, or ABSENT."""
    value: Any = tree
    for part in key.split("."):
        if not isinstance(value, dict) or part not in value:
            return ABSENT
        value = value[part]
    return value


def faults(key: str, value: Any, tree: Tree) -> Iterator[str]:
    """What is wrong with setting `key` to `value`: a key that is not there, or a primitive of the wrong type."""
    if is_open(key, tree):
        return
    known = lookup(key, tree)
    if known is ABSENT:
        yield f"{key}: unknown key{nearest_key(key, tree)}"
    elif isinstance(value, dict) and isinstance(known, dict):
        for inner, item in value.items():
            yield from faults(f"{key}.{inner}", item, tree)
    elif isinstance(value, str) and "${" in value:
        return  # an interpolation has its type only when everything is in place
    elif rule := _broken_rule(value, known, key):
        yield f"{key}={show(value)}: must be {rule}"


def fitted(value: Any, known: Any) -> Any:
    """A typed value in the type that the YAML has: `1e6` for a whole number is 1000000, `1` for a number is 1.0."""
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
    """Values that could run code or leak the environment of the process; a stored config must not hold them."""
    if "_target_" in key.split("."):
        yield f"{key}: _target_ is refused; parts have registered names (rlrun list)"
    elif isinstance(tree, dict):
        for name, value in tree.items():
            yield from refused(value, f"{key}.{name}".lstrip("."))
    elif isinstance(tree, list):
        for place, value in enumerate(tree):
            yield from refused(value, f"{key}.{place}")
    elif isinstance(tree, str) and re.search(r"\$\{\s*oc\.env\b", tree):
        yield f"{key}: ${{oc.env:...}} is refused; write the value itself"


def missing(tree: Any, key: str = "") -> Iterator[str]:
    """A fault for every value that the YAML leaves to the user."""
    if isinstance(tree, dict):
        for name, value in tree.items():
            yield from missing(value, f"{key}.{name}".lstrip("."))
    elif tree == MISSING:
        yield f"{key}: missing; give it a value with {key}=..."


def leaves(tree: Tree, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and values; an empty section counts as a value."""
    for name, value in tree.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def show(value: Any) -> str:
    """A value as the user types it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {show(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(show, value)) + "]"
    return str(value)


def same_meaning(name: str, tree: Tree) -> list[str]:
    """The keys that correspond to another library's name, some with a note, else the first key with this last name."""
    if found := foreign_words.counterparts(name, lambda key: lookup(key, tree) is not ABSENT):
        return found
    for path in paths(tree):
        if path.rpartition(".")[2] == name:
            return [path]
    return []


def nearest_key(key: str, tree: Tree) -> str:
    """A suggestion for an unknown key: one of the same meaning, else one with a similar name in the same section, else
    one with a similar name anywhere."""
    section, _, name = key.rpartition(".")
    if found := same_meaning(name, tree):
        return did_you_mean(" or ".join(found))
    if reason := foreign_words.explanation(name):
        return reason
    home = lookup(section, tree) if section else tree
    if isinstance(home, dict) and (near := closest(name, home)):
        return did_you_mean(f"{section}.{near}".lstrip("."))
    by_name: dict[str, str] = {}
    for path in paths(tree):
        by_name.setdefault(path.rpartition(".")[2], path)
    near = closest(name, by_name, ELSEWHERE)
    return did_you_mean(near and by_name[near])


def paths(tree: Tree, prefix: str = "") -> Iterator[str]:
    """The dotted keys of all sections and values."""
    for name, value in tree.items():
        yield f"{prefix}{name}"
        if isinstance(value, dict):
            yield from paths(value, f"{prefix}{name}.")


def _broken_rule(value: Any, known: Any, key: str) -> str | None:
    """What the value must be, if it is not. The value in the YAML gives the type, unless it is null or ???."""
    if known is None or known == MISSING or value is None or (isinstance(known, str) and "${" in known):
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
    """What to write instead of a section's value. A section of sections, or an empty one, has names as its keys, such
    as `{linear: {}}`."""
    names_parts = all(isinstance(item, dict) for item in known.values())
    if isinstance(value, str) and names_parts:
        return f"; did you mean {key}.{value}={{}}?"
    if known:
        return f", one of its keys: {', '.join(f'{key}.{name}' for name in known)}"
    return ""


_SINGULAR = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
_PLURAL = {bool: "true or false", int: "whole numbers", float: "numbers", str: "texts", list: "lists", dict: "sections"}


def _kind(value: Any) -> type:
    for kind in (bool, int, float, list, dict):
        if isinstance(value, kind):
            return kind
    return str


def _kind_fault(value: Any, known: Any) -> str | None:
    kind, wanted = _kind(value), _kind(known)
    whole = kind is int or (kind is float and float(value).is_integer())
    if kind is wanted or (wanted is float and kind is int) or (wanted is int and whole):
        return None
    return f"{_SINGULAR.get(wanted, _PLURAL[wanted])}, like {show(known)}"
