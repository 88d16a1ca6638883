"""Finds the YAML files and reads their comments, without Hydra, so that `rlrun list` is quick."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import NamedTuple

import yaml

from rlrun.errors import ConfigError
from rlrun.imports import advice, homes, is_found

CONF = Path(__file__).parents[1] / "conf"
PLUGINS = "rlrun.plugins"


def folders(plugins: Iterable[str] = (), extra: Iterable[str] = ()) -> list[Path]:
    """The conf folders in order of precedence: rlrun's own, of installed plug-ins, of the modules `plugins`, `extra`.

    A plug-in is found, not imported, so that its torch is not loaded either. Raises ConfigError for a module that is
    not there; a plug-in without YAML is allowed.
    """
    faults = []
    found = [CONF]
    installed = [entry.module for entry in entry_points(group=PLUGINS)]
    for module in [*installed, *plugins]:
        if is_found(module):
            for home in homes(module):
                found.append(home / "conf")
        else:
            faults.append(f"plugins: cannot find a package named {module!r}{advice(module)}")
    for folder in map(Path, extra):
        if not folder.is_dir():
            faults.append(f"--config-dir: no folder {str(folder)!r}")
        found.append(folder.absolute())
    if faults:
        raise ConfigError(*faults)
    return [folder for folder in dict.fromkeys(found) if folder.is_dir()]


def named_plugins(words: Iterable[str]) -> list[str]:
    """The modules of the last `plugins=[a,b]`. They are needed before composing, so this is without Hydra."""
    names = ""
    for word in words:
        if word.lstrip("+").startswith("plugins="):
            names = word.partition("=")[2].strip("[]")
    return [name.strip(" '\"") for name in names.split(",") if name.strip()]


def options(group: str, where: Sequence[Path]) -> dict[str, Path]:
    """The names to choose from in a group, with their files. Names that begin with `_` are bases, not choices."""
    found: dict[str, Path] = {}
    for folder in where:
        for file in (folder / group.replace(".", "/")).glob("*.yaml"):
            if not file.stem.startswith("_"):
                found.setdefault(file.stem, file)
    return dict(sorted(found.items()))


def groups(where: Sequence[Path]) -> dict[str, dict[str, Path]]:
    """Every group with its names and files; groups of parts have a dot, like `algo.buffer`."""
    names = set()
    for folder in where:
        for home in folder.glob("**/"):
            if home != folder:
                names.add(".".join(home.relative_to(folder).parts))
    return {name: found for name in sorted(names) if (found := options(name, where))}


def own_keys(path: str, where: Sequence[Path]) -> set[str]:
    """The keys that a part's file sets, including those of the files in its defaults and the names of its own parts."""
    file = find(f"{path}.yaml", where)
    if file is None:
        return set()
    tree = yaml.safe_load(file.read_text(encoding="utf-8"))
    bases = tree.pop("defaults", [])
    folder = path.rpartition("/")[0]
    keys = set(tree)
    for base in bases:
        if isinstance(base, dict):  # `entropy@entropy: fixed`: a part, in the section behind the @
            keys |= {group.rpartition("@")[2] for group in base}
        elif base != "_self_":
            base = base.removesuffix("@_here_")
            keys |= own_keys(base[1:] if base.startswith("/") else f"{folder}/{base}", where)
    return keys


def find(path: str, where: Sequence[Path]) -> Path | None:
    """The file that Hydra finds for a path below `conf`."""
    for folder in where:
        if (folder / path).is_file():
            return folder / path
    return None


def label(file: Path) -> str:
    """The path of a file for people: from `conf`, as in `conf/algo/sac.yaml`, or in a plug-in from the folder above."""
    parts = file.parts
    if "conf" not in parts:
        return "/".join(parts)
    start = len(parts) - 1 - parts[::-1].index("conf")
    if start > 0 and not file.is_relative_to(CONF):
        start -= 1
    return "/".join(parts[start:])


class Notes(NamedTuple):
    """The comments of a YAML file."""

    headline: str  # its first comment line
    meanings: dict[str, str]  # every dotted key -> the comment behind its value, or ""


@cache
def notes(file: Path) -> Notes:
    """Read the comments of a YAML file."""
    text = file.read_text(encoding="utf-8")
    node = yaml.compose(text, yaml.SafeLoader)
    return Notes(_headline(text), dict(_meanings(node, text.splitlines(), "")))


def env_id(file: Path) -> str:
    """The Gymnasium id behind an environment's name, or ""."""
    found = re.search(r"^id:\s*['\"]?([^\s'\"#]+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        return ""
    return found[1]


def _headline(text: str) -> str:
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            break
        if line.startswith("#") and not re.match(r"#\s*@", line):
            return line.lstrip("# ").rstrip()
    return ""


def _meanings(node: yaml.Node | None, lines: list[str], prefix: str) -> Iterator[tuple[str, str]]:
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        name = f"{prefix}{key.value}"
        if name == "defaults":
            continue
        mark = value.end_mark
        if isinstance(value, yaml.CollectionNode) and not value.flow_style:  # its values are on the lines below
            mark = key.end_mark
        yield name, _comment_behind(mark, lines)
        yield from _meanings(value, lines, f"{name}.")


def _comment_behind(mark: yaml.Mark, lines: list[str]) -> str:
    """The comment between a place and the end of its line, or ""."""
    if mark.line >= len(lines):
        return ""
    comment = re.search(r"(?:^|\s)#\s*(.*)", lines[mark.line][mark.column :])
    if comment is None:
        return ""
    return comment[1].strip()
