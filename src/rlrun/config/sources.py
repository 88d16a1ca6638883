"""Where the YAML lives and what its comments say. Reads text only, no Hydra, so that `rlrun list` is quick."""

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
    """The conf folders in order of authority: rlrun's own, installed plug-ins', those of the modules named, `extra`.

    A plug-in is found, not imported, so that its torch is not loaded either. Raises ConfigError on a module that is
    not there; a plug-in without YAML is fine.
    """
    faults, found = [], [CONF]
    for module in [entry.module for entry in entry_points(group=PLUGINS)] + list(plugins):
        if is_found(module):
            found += [home / "conf" for home in homes(module)]
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
    """The modules of `plugins=[a,b]`: needed before anything is composed, so read without Hydra."""
    typed = [word.partition("=")[2] for word in words if word.lstrip("+").startswith("plugins=")]
    return [name.strip(" '\"") for name in typed[-1].strip("[]").split(",") if name.strip()] if typed else []


def options(group: str, where: Sequence[Path]) -> dict[str, Path]:
    """The names one may choose in a group, with their files. Names that begin with `_` are bases, not choices."""
    files = (file for folder in reversed(where) for file in (folder / group.replace(".", "/")).glob("*.yaml"))
    found = {file.stem: file for file in files if not file.stem.startswith("_")}  # the first folder has the last word
    return dict(sorted(found.items()))


def groups(where: Sequence[Path]) -> dict[str, dict[str, Path]]:
    """Every group that has something to choose; `algo.buffer` is that of a part."""
    homes = {home.relative_to(folder) for folder in where for home in folder.glob("**/") if home != folder}
    names = sorted(".".join(home.parts) for home in homes)
    return {name: found for name in names if (found := options(name, where))}


def own_keys(path: str, where: Sequence[Path]) -> set[str]:
    """The keys that a part's file gives values to, those of the files it builds on and of its own parts included."""
    file = find(f"{path}.yaml", where)
    tree = yaml.safe_load(file.read_text(encoding="utf-8")) if file else {}
    folder = path.rpartition("/")[0]
    keys: set[str] = set()
    for base in tree.pop("defaults", []):
        if isinstance(base, dict):  # `entropy@entropy: fixed`: a part, in the section behind the @
            keys |= {group.rpartition("@")[2] for group in base}
        elif base != "_self_":
            base = base.removesuffix("@_here_")
            keys |= own_keys(base[1:] if base.startswith("/") else f"{folder}/{base}", where)
    return keys | set(tree)


def find(path: str, where: Sequence[Path]) -> Path | None:
    """The file that Hydra would take for a path below `conf`."""
    return next((folder / path for folder in where if (folder / path).is_file()), None)


def label(file: Path) -> str:
    """How a file is shown: from the folder that holds `conf`, such as `conf/algo/sac.yaml`."""
    parts = file.parts
    start = len(parts) - 1 - parts[::-1].index("conf") if "conf" in parts else 0
    own = file.is_relative_to(CONF)
    return "/".join(parts[start if own or start == 0 else start - 1 :])


class Notes(NamedTuple):
    """What a YAML file says about itself."""

    headline: str  # its first comment line
    meanings: dict[str, str]  # every dotted key -> the comment behind its value, or ""


@cache
def notes(file: Path) -> Notes:
    text = file.read_text(encoding="utf-8")
    node = yaml.compose(text, yaml.SafeLoader)
    return Notes(_headline(text), dict(_meanings(node, text.splitlines(), "")))


def env_id(file: Path) -> str:
    """The Gymnasium id behind an environment's name, or ""."""
    found = re.search(r"^id:\s*['\"]?([^\s'\"#]+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else ""


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
        block = isinstance(value, yaml.CollectionNode) and not value.flow_style
        mark = key.end_mark if block else value.end_mark
        comment = re.search(r"(?:^|\s)#\s*(.*)", lines[mark.line][mark.column :]) if mark.line < len(lines) else None
        yield name, comment[1].strip() if comment else ""
        yield from _meanings(value, lines, f"{name}.")
