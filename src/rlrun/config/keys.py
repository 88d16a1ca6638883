"""Lists the keys that a config has, with values and comments, from the YAML files alone.

`compose.py` gives the exact result, but Hydra takes longer to import than a user waits for a completion. Presets are
left out, because they set only keys that exist already.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from rlrun.config import check, sources

Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
CHOICE = r"[\w.-]+(?::\d+)?"
CHOICES = re.compile(rf"{CHOICE}(?: \| {CHOICE})+")  # at the start of a comment: `auto | cpu | cuda`


class Key(NamedTuple):
    """One setting."""

    value: Any
    choices: list[str]  # the values that it may have, or [] for any


def keys(chosen: Mapping[str, str], where: Sequence[Path]) -> dict[str, Key]:
    """Returns the settings by dotted key. chosen: names by group, such as {"algo": "sac", "algo.entropy": "fixed"}."""
    found: dict[str, Key] = {}
    settings = [*_settings("train", "", chosen, where)]
    if "submit" in chosen:  # a setting of the command, which is not in the config of a run
        settings += _settings(f"submit/{chosen['submit']}", "submit", chosen, where)
    for key, value, comment in settings:
        choices = _choices(value, comment)
        if not choices and key in found:  # a file that overrides the value may have a shorter comment
            choices = found[key].choices
        found[key] = Key(value, choices)
    return found


def _choices(value: Any, comment: str) -> list[str]:
    if isinstance(value, bool):
        return ["true", "false"]
    if listed := CHOICES.match(comment):
        return listed[0].split(" | ")
    return []


def _settings(
    path: str, package: str, chosen: Mapping[str, str], where: Sequence[Path]
) -> Iterator[tuple[str, Any, str]]:
    """Yields key, value and comment of each setting of a file and of its defaults, later ones overriding earlier ones.

    path: of the file below `conf`, without its ending. package: the section in which its keys lie.
    """
    file = sources.find(f"{path}.yaml", where)
    if file is None:
        return
    text = file.read_text(encoding="utf-8")
    if "# @package _global_" in text:
        package = ""
    tree = yaml.load(text, Loader) or {}
    tree.pop("hydra", None)
    for default in [*tree.pop("defaults", ()), "_self_"]:
        for part, section in _parts(default, path, package, chosen):
            yield from _settings(part, section, chosen, where)
    meanings = sources.notes(file).meanings
    for key, value in check.leaves(tree):
        yield _joined(package, key), value, meanings.get(key, "")


def _parts(default: Any, path: str, package: str, chosen: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yields path and package of the file that an entry of a defaults list includes, if it includes one."""
    folder = path.rpartition("/")[0]
    if isinstance(default, str):
        name, _, place = default.partition("@")
        if name != "_self_":
            section = package if place in ("", "_here_") else _joined(package, place)
            yield _below(folder, name), section
        return
    for entry, name in default.items():
        if " " in entry or name is None:  # `override` and `optional` add no keys
            continue
        group, _, place = entry.partition("@")
        home = _below(folder, group)
        section = _joined(package, place or group)
        yield f"{home}/{chosen.get(home.replace('/', '.'), name)}", section


def _below(folder: str, name: str) -> str:
    if name.startswith("/"):
        return name[1:]
    return f"{folder}/{name}".lstrip("/")


def _joined(package: str, key: str) -> str:
    return f"{package}.{key}".strip(".")
