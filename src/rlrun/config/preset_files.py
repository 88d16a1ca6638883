"""Presets that are named by the path of their file, such as the best.yaml of a sweep. Such a file may be untrusted."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlrun import files
from rlrun.config import sources
from rlrun.config.reach import reaches
from rlrun.config.stored import parse_yaml
from rlrun.dotted import lookup
from rlrun.errors import ConfigError

SECTIONS = ("defaults", "trainer", "env", "network", "algo")
PARTS = ("trainer", "network", "algo")  # sections whose parts a preset may choose
OWN_VALUE = re.compile(r"\$\{(trainer|env|network|algo)(\.\w+)+\}")  # a reference to a value of a section
NAME = re.compile(r"[\w-]+")  # a name, and no path
PART = re.compile(r"override /(?P<group>\w+(/\w+)*)(@(?P<section>\w+(\.\w+)*))?")


def read(name: str, where: Sequence[Path]) -> dict[str, Any]:
    """Returns the content of a preset. where: folders with the presets on which it may be based.

    Raises ConfigError unless the file holds data alone: values of `SECTIONS`, names of parts, and references to values.
    """
    path = Path(name)
    try:
        values = parse_yaml(files.read(path, files.CONFIG_BYTES).decode(), path, sources.PlainYaml)
    except FileNotFoundError:
        raise ConfigError(f"preset={name}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"preset={name}: cannot be read ({error})") from None
    if not isinstance(values, dict):
        raise ConfigError(f"preset={name}: must be a mapping of config keys to values")
    if sources.is_empty(values):
        raise ConfigError(f"preset={name}: sets nothing")
    for fault in _faults(values, where):  # the first is enough: an untrusted file may have thousands
        raise ConfigError(f"preset={name}: {fault}")
    return values


def _faults(values: dict[str, Any], where: Sequence[Path]) -> Iterator[str]:
    for section in values:
        if section not in SECTIONS:
            yield f"sets {section}, but may set only {', '.join(SECTIONS)}"
    if isinstance(values.get("env"), dict) and "id" in values["env"]:
        yield "sets env.id; choose the environment with env=..."
    defaults = values.get("defaults", [])
    if not isinstance(defaults, list):
        yield "defaults: must be a list"
        defaults = []
    presets = sources.options("preset", where)
    for entry in defaults:
        if not _is_default(entry, presets):
            yield (
                f"defaults: {entry}: must be _self_, /preset/<name> of rlrun or a plug-in, or a part, like "
                "override /algo/buffer@algo.buffer: prioritized"
            )
    own_values = {key: value for key, value in values.items() if key != "defaults"}
    yield from _not_plain(own_values, "")


def _is_default(entry: object, presets: Mapping[str, Path]) -> bool:
    """Returns whether an entry of `defaults` chooses a known preset, or a part by its name."""
    if entry == "_self_":
        return True
    if isinstance(entry, str):
        return entry.startswith("/preset/") and entry.removeprefix("/preset/") in presets
    if not isinstance(entry, dict) or len(entry) != 1:
        return False
    ((key, name),) = entry.items()
    found = PART.fullmatch(str(key))
    if found is None or not isinstance(name, str) or not NAME.fullmatch(name):
        return False
    section = found["group"].replace("/", ".")
    if section == "algo" or section.partition(".")[0] not in PARTS:
        return False
    return found["section"] in (None, section)


def _not_plain(value: object, key: str) -> Iterator[str]:
    """Yields a fault for each key that is no name, and each value that YAML or OmegaConf would compute."""
    if isinstance(value, dict):
        for name, item in value.items():
            if not isinstance(name, str):
                yield f"{key}{name}: a key must be a name"
            yield from _not_plain(item, f"{key}{name}.")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _not_plain(item, f"{key}{index}.")
    elif isinstance(value, str):
        if "${" in OWN_VALUE.sub("", value):
            yield f"{key.rstrip('.')}: {value}: may only refer to a value, like ${{algo.gamma}}"
    elif value is not None and not isinstance(value, bool | int | float):
        yield f"{key.rstrip('.')}: {value}: must be a number, a text, true, false or null"


def added(name: str, values: Mapping[str, object], without: Mapping[str, object]) -> Iterator[str]:
    """Yields a fault for each value outside of `SECTIONS` that a preset has changed, and for each reach that it adds.

    values, without: the config composed with the preset, and the one composed from the same words without it.
    """
    for section, value in values.items():
        if section not in (*SECTIONS, "preset") and value != without[section]:
            yield f"preset={name}: sets {section}, but may set only {', '.join(SECTIONS)}"
    if lookup("env.id", dict(values)) != lookup("env.id", dict(without)):
        yield f"preset={name}: sets env.id; choose the environment with env=..."
    known = list(reaches(without))
    for reach in reaches(values):
        if reach not in known:
            yield f"preset={name}: {reach.line}"
