"""Finds the YAML files of `conf` folders and reads their comments. Does not import Hydra, so `rlrun list` is fast.

Configs come from folders of YAML files, and from Python files of plug-ins whose parts need no YAML file.
"""

import copy
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from rlrun.config import check, declared, defined
from rlrun.errors import ConfigError, closest, did_you_mean, undecodable
from rlrun.imports import advice, homes, installed_plugins, is_found, is_path, source_of

NUMBER = re.compile(r"[-+]?([0-9][0-9_]*\.?[0-9_]*|\.[0-9_]+)[eE][-+]?[0-9]+$")  # 1e-3, which is text in YAML 1.1
NAME = re.compile(r"""\s*([^\[\]{}'"]*|'[^'"]*'|"[^'"]*")\s*""")  # of a choice, plain or in quotes
HEADER = re.compile(r"#\s*@")
CONFIG_DIR = "--config-dir"
CONF = Path(__file__).parents[1] / "conf"


class PlainYaml(yaml.constructor.SafeConstructor, yaml.resolver.Resolver):
    """Reads YAML as people write it: 1e-3 is a number, and a key that stands twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        known = set()
        for key, _ in node.value:
            name = f"{key.value}"
            if name in known:
                raise yaml.constructor.ConstructorError(None, None, f"found duplicate key {name}", key.start_mark)
            known.add(name)
        return super().construct_mapping(node, deep)


PlainYaml.add_implicit_resolver("tag:yaml.org,2002:float", NUMBER, [*"-+.0123456789"])


class ConfigYaml(PlainYaml, yaml.SafeLoader):
    """The loader in Python, whose errors say what was expected."""


class FastYaml(PlainYaml, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The loader in C, eight times faster, if PyYAML was installed with it."""


def config_dirs(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns a word `--config-dir=DIR` for each folder that words such as `--config-dir DIR` name, and the other
    words."""
    dirs = []
    others = []
    rest = [*words]
    while rest:
        word = rest.pop(0)
        name, equals, folder = word.partition("=")
        if name not in (CONFIG_DIR, "-cd"):
            others.append(word)
            continue
        if not equals and not rest:
            raise ConfigError(f"{word}: needs a folder")
        if not equals:
            folder = rest.pop(0)
        dirs.append(f"{CONFIG_DIR}={folder}")
    return dirs, others


def folders_of(words: Sequence[str]) -> list[Path]:
    """Returns the `folders` of the plug-ins and of the `--config-dir` among words."""
    dirs, others = config_dirs(words)
    return folders(named_plugins(others), [word.removeprefix(f"{CONFIG_DIR}=") for word in dirs])


def folders(plugins: Iterable[str] = (), extra: Iterable[str] = ()) -> list[Path]:
    """Returns the folders and files with configs, in order of precedence.

    The order is: rlrun's own, those of installed plug-ins, those of the modules `plugins`, then `extra`. Plug-ins
    are located but not imported, because they may import torch. A plug-in may have no conf folder. Raises ConfigError
    if a module or a folder of `extra` does not exist, or if no name can choose a file of a folder.
    """
    faults = []
    found = [CONF]
    for entry in installed_plugins():
        found += _places(entry.module)
    for module in plugins:
        try:
            places = _places(module)
        except ConfigError as error:
            faults += [f"plugins: {fault}" for fault in error.faults]
            continue
        for place in places:
            faults += _misplaced(place)
        found += places
    for folder in map(Path, extra):
        if not folder.is_dir():
            faults.append(f"{CONFIG_DIR}: no folder {str(folder)!r}")
        elif misplaced := [*_misplaced(folder)]:
            faults += misplaced
        elif not any(_options_in(folder, group) for group in groups([CONF])):
            faults.append(f"{CONFIG_DIR}: {str(folder)!r} has no YAML file in a folder named {', '.join(_homes())}")
        found.append(folder.absolute())
    if faults:
        raise ConfigError(*faults)
    return [place for place in dict.fromkeys(found) if place.exists()]


def _homes() -> list[str]:
    """Returns the folders of `conf`, such as algo and preset."""
    return [group for group in groups([CONF]) if "." not in group]


def _misplaced(folder: Path) -> Iterator[str]:
    """Yields a fault for each file in a user's folder that no name chooses, because of its ending or its folder."""
    for group in groups([CONF]):
        for file in (folder / group.replace(".", "/")).glob("*.yml"):
            yield f"{label(file)}: the name of the file must end in .yaml"
    for inner in folder.glob("*/"):
        near = closest(inner.name, _homes(), check.STRICT_LIKENESS)
        if near not in (None, inner.name) and any(inner.rglob("*.yaml")):
            yield f"{label(inner)}: its files have no effect{did_you_mean(near)}"


def _places(module: str) -> list[Path]:
    """Returns the `conf` folder of a package, and the Python file of the module if it registers parts."""
    if not (is_path(module) or is_found(module)):
        raise ConfigError(f"cannot find a package named {module!r}{advice(module)}")
    found = [home / "conf" for home in homes(module)]
    file = source_of(module)
    if file is not None and declared.declared(file):
        found.append(file)
    return found


def by_name(words: Sequence[str], algos: Iterable[str] = ()) -> list[str]:
    """Returns the words with each Python file replaced by the name of its part, and added to the plug-ins.

    `algo=./my_algo.py` becomes `algo=my_algo plugins=[./my_algo.py]`. Files within lists, mappings and longer texts are
    values, and never read. Raises ConfigError for a file that does not register exactly one part of the group.
    algos: names with which keys may begin, as in `ppo.network=./my_network.py`.
    """
    found = []
    files: list[str] = []
    for word in words:
        key, _, value = word.partition("=")
        group = key.lstrip("+")
        first, _, rest = group.partition(".")
        if first in algos:
            group = rest
        elements = value.split(",")
        is_choice = group != "env" and group in groups([CONF])
        are_names = all(map(NAME.fullmatch, elements))
        if ".py" in value and is_choice and are_names:
            names = []
            for element in elements:
                path = element.strip(" '\"")
                if path.endswith(".py"):
                    files.append(path)
                    names.append(_name_in(path, group))
                else:
                    names.append(element)
            word = f"{key}={','.join(names)}"
        found.append(word)
    if not files:
        return found
    plugins = dict.fromkeys([*named_plugins(found), *files])
    others = [word for word in found if not word.lstrip("+").startswith("plugins=")]
    return [*others, *plugins_word([*plugins])]


def plugins_word(plugins: Sequence[str]) -> list[str]:
    """Returns the word that names the plug-ins, in a list, which is empty without plug-ins."""
    if not plugins:
        return []
    return [f"plugins=[{','.join(map(_quoted, plugins))}]"]


def parts_of(plugin: str) -> Sequence[declared.Declared]:
    """Returns the parts that a Python file of the user registers."""
    file = source_of(plugin)
    if file is None:
        return ()
    return declared.declared(file)


def algorithms(words: Iterable[str]) -> list[str]:
    """Returns the names in the last `algo=a,b`."""
    names = ""
    for word in words:
        if word.lstrip("+").startswith("algo="):
            names = word.partition("=")[2]
    return [name.strip(" '\"") for name in names.split(",") if name.strip()]


def is_preset_path(name: str) -> bool:
    """Returns whether a preset is named by the path of its file, such as the best.yaml of a sweep."""
    return name.endswith(".yaml") and Path(name).is_file()


def is_whole(path: str) -> bool:
    """Returns whether a file below `conf` sets keys of the whole config: an algorithm or a preset, but no part."""
    group, _, name = path.partition("/")
    return group == "preset" or (group == "algo" and "/" not in name)


def is_empty(values: dict[str, Any]) -> bool:
    """Returns whether a YAML file sets nothing, itself or by its defaults."""
    if values.keys() - {"defaults"}:
        return False
    return values.get("defaults") in (None, [], ["_self_"])


def unreadable(place: str, error: Exception) -> str:
    """Returns the fault of a file that is no YAML mapping, with the line if it is known. place: the file."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        return f"{place}, line {error.problem_mark.line + 1}: {error.problem}"
    return f"{place}: must be a mapping of config keys to values"


def _name_in(path: str, group: str) -> str:
    try:
        file = source_of(path)
    except ConfigError as error:
        raise ConfigError(f"{group}={error}") from None
    assert file is not None
    return declared.only(file, path, group)


def _quoted(path: str) -> str:
    """Returns a path or a name as an element of a list on the command line."""
    if re.fullmatch(r"[\w./-]+", path, re.ASCII):
        return path
    return f"'{path}'"


def named_plugins(words: Iterable[str]) -> list[str]:
    """Returns the modules of the last `plugins=[a,b]`. Does not use Hydra, which needs the folders of these modules."""
    names = ""
    for word in words:
        if word.lstrip("+").startswith("plugins="):
            names = word.partition("=")[2].strip("[]")
    return [name.strip(" '\"") for name in names.split(",") if name.strip()]


def options(group: str, where: Sequence[Path]) -> dict[str, Path]:
    """Returns the names of a group with their files. Leaves out files that begin with `_`, which are bases."""
    found: dict[str, Path] = {}
    for folder in where:
        found = _options_in(folder, group) | found
    for file in python_files(where):
        for part in declared.declared(file):
            if part.group == declared.registered_group(group):
                found.setdefault(part.name, part.yaml_file or file)
    for defined_part in defined.defined(group):
        found.setdefault(defined_part.name, defined_part.file)
    return dict(sorted(found.items()))


def _options_in(folder: Path, group: str) -> dict[str, Path]:
    if folder == CONF:
        return _shipped_options().get(group.replace("/", "."), {})
    return _listed(folder, group)


@cache
def _shipped_options() -> dict[str, dict[str, Path]]:
    """Returns the names of every group of rlrun's own, whose files do not change while it runs."""
    return {group: _listed(CONF, group) for group in _groups_below(CONF)}


def _listed(folder: Path, group: str) -> dict[str, Path]:
    files = (folder / group.replace(".", "/")).glob("*.yaml")
    return {file.stem: file for file in files if not file.stem.startswith("_")}


def _groups_in(folder: Path) -> Iterable[str]:
    if folder == CONF:
        return _shipped_options()
    return _groups_below(folder)


def _groups_below(folder: Path) -> list[str]:
    return [".".join(home.relative_to(folder).parts) for home in folder.glob("**/") if home != folder]


def python_files(where: Iterable[Path]) -> list[Path]:
    """Returns the Python files in `where`."""
    return [place for place in where if place.suffix == ".py"]


def groups(where: Sequence[Path]) -> dict[str, dict[str, Path]]:
    """Returns every group with its names and files. Groups of parts have a dot, like `algo.buffer`."""
    names: set[str] = set()
    for folder in where:
        names |= set(_groups_in(folder))
    found = {name: options(name, where) for name in sorted(names)}
    return {name: files for name, files in found.items() if files}


def content(file: Path) -> Any:
    """Returns the values of a YAML file in a `conf` folder. Raises ConfigError if it is not YAML."""
    try:
        return copy.deepcopy(_parsed(_text(file)))
    except (ValueError, yaml.YAMLError) as error:
        raise ConfigError(unreadable(label(file), error)) from None


def _text(file: Path) -> str:
    """Returns the text of a YAML file. Raises ConfigError if it is not UTF-8."""
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{label(file)}, {undecodable(error)}") from None


def package(file: Path) -> str | None:
    """Returns the section that a YAML file sets by `# @package <section>` above its first line, or None.

    Raises ConfigError for such a line in another form.
    """
    found = None
    for line in _text(file).splitlines():
        line = line.strip()
        if not line:
            continue
        if not HEADER.match(line):
            break
        words = line.lstrip("#").split()
        if len(words) < 2:
            raise ConfigError(f"{label(file)}: Expected header format: KEY VALUE, got {' '.join(words)!r}")
        if len(words) > 2:
            raise ConfigError(f"{label(file)}: Too many components in {' '.join(words)!r}")
        if words[0] == "@package":
            found = words[1]
    return found


@lru_cache(maxsize=1024)  # texts; rlrun's own are some 400
def _parsed(text: str) -> Any:
    try:
        return yaml.load(text, FastYaml)
    except yaml.YAMLError:
        return yaml.load(text, ConfigYaml)  # raises the error with the better message


def label(file: Path) -> str:
    """Returns the path of a file as messages show it: such as `conf/algo/sac.yaml` for a file of rlrun.

    A file of the user has a path that opens from the current folder. That of an installed package begins with the
    folder of the package.
    """
    if file.is_relative_to(CONF):
        return str("conf" / file.relative_to(CONF))
    path = os.path.relpath(file)
    if not path.startswith(os.pardir):
        return path
    for folder in file.parents:
        if folder.name == "conf" and (folder.parent / "__init__.py").is_file():
            return str(file.relative_to(folder.parent.parent))
    return os.path.abspath(file)


class Notes(NamedTuple):
    """The comments of a YAML file."""

    headline: str  # its first comment line
    meanings: dict[str, str]  # every dotted key -> the comment after its value, or ""


@cache
def notes(file: Path) -> Notes:
    """Returns the comments of a YAML file, or of the Python file of a part without one.

    A key without a comment in a YAML file has that of the Python file with the same name beside it.
    """
    if file.suffix == ".py":
        return Notes(declared.headline(file), declared.meanings(file))
    text = _text(file)
    try:
        node = yaml.compose(text, yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise ConfigError(unreadable(label(file), error)) from None
    found = dict(_meanings(node, text.splitlines(), ""))
    beside = file.with_suffix(".py")
    if beside.is_file():
        for key, meaning in declared.meanings(beside).items():
            if found.get(key) == "":
                found[key] = meaning
    return Notes(_headline(text), found)


def env_id(file: Path) -> str:
    """Returns the Gymnasium id in an environment's YAML file, or "" if it has none."""
    if file.parent == CONF / "env":
        return _shipped_ids()[file.stem]
    return _env_id(file)


@cache
def _shipped_ids() -> dict[str, str]:
    return {name: _env_id(file) for name, file in options("env", [CONF]).items()}


def _env_id(file: Path) -> str:
    found = re.search(r"^id:\s*['\"]?([^\s'\"#]+)", _text(file), re.MULTILINE)
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
        if isinstance(value, yaml.CollectionNode) and not value.flow_style:  # the section's values are on later lines
            mark = key.end_mark
        yield name, _comment_behind(mark, lines)
        yield from _meanings(value, lines, f"{name}.")


def _comment_behind(mark: yaml.Mark, lines: list[str]) -> str:
    """Returns the comment between a position and the end of its line, or ""."""
    if mark.line >= len(lines):
        return ""
    comment = re.search(r"(?:^|\s)#\s*(.*)", lines[mark.line][mark.column :])
    if comment is None:
        return ""
    return comment[1].strip()
