"""Finds what has no effect in a user's file: keys that are no setting of the run, and classes that are not used.

Every fault is one line. A value that equals the default is no fault.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rlrun import dotted
from rlrun.config import check, declared, sources
from rlrun.config.contents import Contents
from rlrun.errors import ConfigError, closest, did_you_mean
from rlrun.imports import module_of

Tree = dict[str, Any]
Check = Callable[[Tree, Tree], Iterator[str]]

WITHOUT_YAML = {
    "callback": "callbacks=[{{name: {}, key: value}}]",
    "transform": "env.transforms=[{{name: {}, key: value}}]",
    "wrapper": "env.wrappers.{}.key=value",
}
CHOSEN = {"algo.name": "algo=...", "env.id": "env=..."}  # what a preset must leave to the command line


def name_faults(group: str, name: str, tree: Tree, contents: Contents) -> Iterator[str]:
    """Yields a fault if a user's file registers a class under the chosen name, but another class would be used."""
    found = contents.of(f"{group}/{name}")
    if found is None or found.file is None:
        return
    file = found.file
    section = group.replace("/", ".")
    used = dotted.lookup(f"{section}.name", tree)
    part = declared.find(group, name, sources.python_files(contents.folders))
    if part is not None and file.is_relative_to(sources.CONF):
        yield f"{part.file.name}: registers {name}, a name of rlrun's own {section}; choose another name"
        return
    if used in (name, dotted.ABSENT):
        return
    if part is None:
        part = declared.find(group, name, _package(file))
    if part is not None:
        yield f"{sources.label(file)}: its name is {used}, but {part.file.name} registers {name}"


def _package(file: Path) -> list[Path]:
    """Returns the Python files of the package of a user to whose `conf` folder a file belongs."""
    for folder in file.parents:
        if folder.name == "conf" and (folder.parent / "__init__.py").is_file() and folder != sources.CONF:
            return sorted(folder.parent.rglob("*.py"))
    return []


def class_faults(name: str, tree: Tree, contents: Contents) -> Iterator[str]:
    """Yields the values in the class of an algorithm that the defaults list of its YAML file overrides.

    tree: the config of the algorithm alone.
    """
    part = declared.find("algo", name, sources.python_files(contents.folders))
    found = contents.of_user(f"algo/{name}")
    if part is None or found is None or found.file is None:
        return
    for place, key, value in part.written():
        used = dotted.lookup(key, tree)
        is_set_in_yaml = dotted.lookup(key, found.values) is not dotted.ABSENT
        if used not in (dotted.ABSENT, value) and not is_set_in_yaml:
            word = f"{key}={dotted.show(value)}"
            yield f"{place}: {word} has no effect, because defaults of {found.file.name} set {dotted.show(used)}"


def unused_yaml_files(where: Sequence[Path]) -> Iterator[str]:
    """Yields a fault for each YAML file beside a Python file whose part takes no values from YAML."""
    for file in sources.python_files(where):
        for part in declared.declared(file):
            if part.group in WITHOUT_YAML and part.yaml_file is not None:
                usage = WITHOUT_YAML[part.group].format(part.name)
                yield f"{sources.label(part.yaml_file)}: has no effect; write {usage}"


def unused_environment_yaml(tree: Tree) -> Iterator[str]:
    """Yields the fault of a YAML file with settings of `env` beside the Python file of an environment.

    A YAML file with any other key is taken for one that the environment itself reads.
    """
    module = module_of(dotted.lookup("env.id", tree))
    if module is None or not Path(module).is_file() or declared.declared(Path(module)):
        return
    file = Path(module).with_suffix(".yaml")
    values: Any = None
    with contextlib.suppress(ConfigError, OSError):
        values = sources.content(file)
    if isinstance(values, dict) and values and values.keys() <= {*tree["env"], "defaults"}:
        key = [*values][-1]
        word = f"env.{key}={dotted.show(values[key])}"
        yield f"{sources.label(file)}: has no effect beside an environment; type its settings, such as {word}"


def preset_faults(values: Tree, others: Tree) -> Iterator[str]:
    """Yields the faults of the values of a preset. others: the config without them."""
    for key, choice in CHOSEN.items():
        value = dotted.lookup(key, values)
        if value not in (dotted.ABSENT, dotted.lookup(key, others)):
            yield f"{key}={dotted.show(value)}: a preset cannot set it; type {choice}"
            return
    yield from _faults(values, others)


def algorithm_faults(values: Tree, others: Tree) -> Iterator[str]:
    """Yields the faults of the values of an algorithm, except those of its own settings, which its class checks.

    others: the config without these values, but with the parts that the file chooses.
    """
    outside = {key: value for key, value in values.items() if key != "algo"}
    yield from _faults(outside, others)
    for key, value in (values.get("algo") or {}).items():
        known = dotted.lookup(f"algo.{key}", others)
        if isinstance(known, dict) and isinstance(value, dict):
            yield from _faults({key: value}, others, "algo.")


def replaced(values: Tree, later: Tree) -> Iterator[str]:
    """Yields a fault for each value of a file that entries after `_self_` in the file's defaults list override.

    later: the values of these entries.
    """
    for key, value in dotted.leaves(values):
        if dotted.lookup(key, later) not in (dotted.ABSENT, value):
            yield f"{key}={dotted.show(value)}: has no effect, because defaults set it again; write _self_ last in them"


def _faults(values: Tree, others: Tree, section: str = "") -> Iterator[str]:
    """Yields the faults of values that a file sets. section: that of the values, ending with a dot; "": none."""
    is_outermost = section == ""
    for name, value in values.items():
        key = f"{section}{name}"
        known = dotted.lookup(key, others)
        part = dotted.lookup(f"{section}name", others)  # name of the part to which the section belongs, if any
        if check.is_open(key, others):
            continue
        if "." in f"{name}":
            outer, inner, *_ = key.split(".")
            yield f"{key}: a key with a dot has no effect; write a section, {outer}: {{{inner}: ...}}"
        elif isinstance(known, dict) and known and isinstance(value, dict) and value:
            yield from _faults(value, others, f"{key}.")
        elif isinstance(known, dict) and is_outermost and value is None:
            yield f"{key}: has no settings"
        elif isinstance(known, dict) and is_outermost and not isinstance(value, dict):
            word = f"{key}={dotted.show(value)}"
            yield f"{word}: must be a section of settings; type {word} on the command line"
        elif known is dotted.ABSENT and isinstance(part, str) and section != "algo.":
            home = section.removesuffix(".")
            near = closest(name, dotted.lookup(home, others))
            yield f"{key}: {home}={part} has no such key{did_you_mean(near, f'{home}.')}"
        else:
            yield from check.faults(key, value, others)
