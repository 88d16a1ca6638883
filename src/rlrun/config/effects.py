"""Finds what a user's file names without an effect: keys that reach no setting of the run, and names of other parts.

Every fault is one line. A value that equals the default is no fault.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rlrun.config import check, declared, sources

Tree = dict[str, Any]
Check = Callable[[Tree, Tree], Iterator[str]]

CHOSEN = {"algo.name": "algo=...", "env.id": "env=..."}  # what a preset must leave to the command line


def name_faults(group: str, name: str, tree: Tree, where: Sequence[Path]) -> Iterator[str]:
    """Yields the fault of a choice whose class in a user's file is not what runs."""
    part = declared.find(group, name, sources.python_files(where))
    if part is None:
        return
    file = sources.find(f"{group}/{name}.yaml", where)
    section = group.replace("/", ".")
    runs = check.lookup(f"{section}.name", tree)
    if file is not None and file.is_relative_to(sources.CONF):
        yield f"{part.file.name}: registers {name}, a name of rlrun's own {section}; choose another name"
    elif runs != name:
        yield f"{sources.label(file or part.file)}: its name is {runs}, but {part.file.name} registers {name}"


def preset_faults(values: Tree, others: Tree) -> Iterator[str]:
    """Yields the faults of the values of a preset. others: the config without them."""
    if not values:
        yield "sets nothing"
    for key, choice in CHOSEN.items():
        value = check.lookup(key, values)
        if value not in (check.ABSENT, check.lookup(key, others)):
            yield f"{key}={check.show(value)}: a preset cannot set it; type {choice}"
            return
    yield from _faults(values, others)


def algorithm_faults(values: Tree, others: Tree) -> Iterator[str]:
    """Yields the faults of the values of an algorithm, except those of its own settings, which its class checks.

    others: the config without these values, but with the parts that the file chooses.
    """
    outside = {key: value for key, value in values.items() if key != "algo"}
    yield from _faults(outside, others)
    for key, value in (values.get("algo") or {}).items():
        known = check.lookup(f"algo.{key}", others)
        if isinstance(known, dict) and isinstance(value, dict):
            yield from _faults({key: value}, others, "algo.")


def _faults(values: Tree, others: Tree, section: str = "") -> Iterator[str]:
    for name, value in values.items():
        key = f"{section}{name}"
        known = check.lookup(key, others)
        if check.is_open(key, others):
            continue
        if "." in f"{name}":
            outer, inner, *_ = key.split(".")
            yield f"{key}: a key with a dot has no effect; write a section, {outer}: {{{inner}: ...}}"
        elif isinstance(known, dict) and known and isinstance(value, dict):
            yield from _faults(value, others, f"{key}.")
        elif isinstance(known, dict) and not section and value is None:
            yield f"{key}: has no settings"
        elif isinstance(known, dict) and not section and not isinstance(value, dict):
            word = f"{key}={check.show(value)}"
            yield f"{word}: must be a section of settings; type {word} on the command line"
        else:
            yield from check.faults(key, value, others)
