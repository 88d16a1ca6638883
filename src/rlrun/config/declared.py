"""Reads what a Python file of the user registers: names, settings with defaults, comments. Imports nothing.

Such a part needs no YAML file in a folder like `conf`: its values are the defaults of its Config, or those of a YAML
file that lies beside the Python file and has its name.
"""

import ast
import contextlib
import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.util import decode_source
from pathlib import Path
from typing import Any, NamedTuple

from rlrun import dotted
from rlrun.config import check
from rlrun.errors import ConfigError, undecodable

CONSTANT = re.compile(r"_|[A-Z]")  # names without a type that begin like this are constants, not settings
CLASS_VAR = re.compile(r"(typing\.)?ClassVar\b")
RLRUN = Path(__file__).parents[2]  # the folder that holds the package
CONF = RLRUN / "rlrun/conf"
MOST_BYTES = 1 << 20  # of a Python file
# class attributes with which an algorithm chooses parts, each a section of `algo`: an example of a name, for messages
CHOSEN_PARTS = {"loop": "onpolicy", "buffer": "replay"}


class Declared(NamedTuple):
    """A class that a file registers with `@register(group, name)`."""

    file: Path
    group: str
    name: str
    node: ast.ClassDef

    @property
    def yaml_file(self) -> Path | None:
        """The YAML file with the values of this part, beside the Python file with the same name; None if there is none.

        The file belongs to the algorithm of the Python file, or to its first part if it registers no algorithm. Raises
        ConfigError if its name ends in .yml.
        """
        parts = declared(self.file)
        owner = next((part for part in parts if part.group == "algo"), parts[0])
        beside = self.file.with_suffix(".yaml")
        if self.file.with_suffix(".yml").is_file():
            raise ConfigError(f"{self.file.stem}.yml: the name of the file must end in .yaml")
        if owner.name != self.name or owner.group != self.group or not beside.is_file():
            return None
        return beside

    @property
    def name_key(self) -> str | None:
        """The key that holds the name of this part in its YAML file.

        It is `algo.name` for an algorithm, whose file holds keys of the whole config, and None for a logger, whose name
        is that of its section.
        """
        if self.group == "logger":
            return None
        if self.group == "algo":
            return "algo.name"
        return "name"

    @property
    def base(self) -> str | None:
        """The name of the part whose settings this one inherits, because its class is a subclass; None if none.

        The class of the other is one of rlrun or of the same file. An algorithm with a YAML file, or that chooses its
        loop or buffer, inherits no settings; nor does another part with a Config that inherits from none.
        """
        if not self.node.bases:
            return None
        if self.group == "algo":
            chooses_parts = any(value for part in CHOSEN_PARTS for value in _assigned(self.node, part))
            if chooses_parts or self.yaml_file is not None:
                return None
        elif any(not inner.bases for inner in _inner_config(self.node)):
            return None
        return _base(self.node, self.file, self.group) or shared_settings(self.group)

    def values(self) -> dict[str, object]:
        """Returns the settings in the class's Config with their defaults, `???` for a setting without a default.

        Raises ConfigError if a default is computed or a setting has no type, or if the class has neither a Config nor
        a base.
        """
        settings = _config(self.node)
        if settings is None and self.base is not None:
            settings = []
        if settings is None:
            raise ConfigError(
                f"{self.group}={self.name}: class {self.node.name} in {self.file.name} needs an inner class Config "
                f"whose settings have defaults, or a file {self.file.stem}.yaml beside it"
            )
        found: dict[str, object] = {}
        for setting in settings:
            key = _key(setting)
            if isinstance(setting, ast.Assign):
                value = ast.unparse(setting.value)
                raise ConfigError(f"{self._place(setting)}: {key} has no type; write {key}: <type> = {value}")
            found[key] = check.MISSING
            if setting.value is not None:
                found[key] = self._literal(setting.value, key)
        return found

    def chosen_parts(self) -> dict[str, dict[str, Any]]:
        """Returns the sections of `algo` that an algorithm sets by its class attributes `loop` and `buffer`.

        Raises ConfigError if there is neither a loop nor a base, or if a section is not a literal dict with a name.
        """
        found = {}
        for part, example in CHOSEN_PARTS.items():
            for value in _assigned(self.node, part):
                section = self._literal(value, part)
                is_section = isinstance(section, dict) and "name" in section
                if not is_section or not _are_strings([*section, section["name"]]):
                    raise ConfigError(f"{self._place(value)}: {part} must be a section such as {{'name': '{example}'}}")
                found[part] = section
        if "loop" not in found and self.base is None:
            raise ConfigError(
                f"algo={self.name}: class {self.node.name} in {self.file.name} needs its loop, as the class attribute "
                f"loop = {{'name': 'onpolicy', 'rollout_steps': 32}} or in a file {self.file.stem}.yaml beside it, "
                "which may begin with defaults: [ppo, _self_]"
            )
        return found

    def written(self) -> Iterator[tuple[str, str, object]]:
        """Yields place, key and value of the defaults in the Config of an algorithm, and of its `loop` and `buffer`.

        Leaves out values that are computed, which cannot be known without an import.
        """
        for setting in _config(self.node) or ():
            if isinstance(setting, ast.AnnAssign) and setting.value is not None:
                yield from self._plain(setting.value, _key(setting))
        for part in CHOSEN_PARTS:
            for value in _assigned(self.node, part):
                yield from self._plain(value, part)

    def _plain(self, value: ast.expr, key: str) -> Iterator[tuple[str, str, object]]:
        with contextlib.suppress(ValueError, TypeError, RecursionError):
            for name, item in dotted.leaves({key: ast.literal_eval(value)}):
                yield self._place(value), f"algo.{name}", item

    def _literal(self, value: ast.expr, key: str) -> Any:
        try:
            found = ast.literal_eval(value)
        except (ValueError, TypeError, RecursionError):
            raise ConfigError(
                f"{self._place(value)}: the value of {key} must be written out; "
                f"one that is computed needs a file {self.file.stem}.yaml beside it"
            ) from None
        if not is_plain(found):
            raise ConfigError(
                f"{self._place(value)}: the value of {key} must consist of numbers, strings, lists and dicts"
            )
        return found

    def _place(self, node: ast.expr | ast.stmt) -> str:
        return f"{self.file.name}, line {node.lineno}"


@cache
def declared(file: Path) -> tuple[Declared, ...]:
    """Returns the registered classes at the top level of a file. Raises ConfigError if it is not Python."""
    found = []
    for node in _tree(file).body:
        if isinstance(node, ast.ClassDef):
            found += [Declared(file, group, name, node) for group, name in _registered(node)]
    return tuple(found)


def classes(file: Path) -> list[str]:
    """Returns the names of the classes at the top level of a file. Raises ConfigError if it is not Python."""
    return [node.name for node in _tree(file).body if isinstance(node, ast.ClassDef)]


def registered_group(group: str) -> str:
    """Returns the name with which parts of a group register: `buffer` for `algo.buffer` and for `algo/buffer`."""
    return re.split("[./]", group)[-1]


def find(group: str, name: str, files: list[Path]) -> Declared | None:
    """Returns the class of this name in the first file that registers it, or None if no file does.

    group: the folder in `conf` for YAML files of the group, such as `algo/buffer`.
    """
    for file in files:
        for part in declared(file):
            if part.group == registered_group(group) and part.name == name:
                return part
    return None


def only(file: Path, path: str, group: str) -> str:
    """Returns the name of the only class that a file registers in a group. Raises ConfigError for any other number.

    group: the key that the user typed, such as `algo.buffer`.
    """
    registered = registered_group(group)
    names = [part.name for part in declared(file) if part.group == registered]
    if not names:
        hint = f'@register("{registered}", "{file.stem}")'
        raise ConfigError(f"{group}={path}: the file registers no {registered}; put {hint} above the class")
    if len(names) > 1:
        choices = " or ".join(f"{group}={name}" for name in names)
        raise ConfigError(f"{group}={path}: the file registers {', '.join(names)}; choose plugins=[{path}] {choices}")
    return names[0]


def headline(file: Path) -> str:
    """Returns the first line of a file's docstring, or ""."""
    return (ast.get_docstring(_tree(file)) or "").partition("\n")[0]


def meanings(file: Path) -> dict[str, str]:
    """Returns the comments after the settings of all registered classes by key, with `algo.` before an algorithm's.

    The keys that an algorithm sets in its loop and buffer have no comment.
    """
    lines = _text(file).split("\n")  # as Python counts lines
    found = {}
    for part in declared(file):
        prefix = ""
        if part.group == "algo":
            prefix = "algo."
        for setting in _config(part.node) or ():
            line = lines[(setting.end_lineno or 1) - 1].encode()  # as bytes, because ast counts columns in bytes
            rest = line[setting.end_col_offset or 0 :].decode()
            found[prefix + _key(setting)] = rest.partition("#")[2].strip()
        if part.group == "algo":
            found["algo.name"] = ""
            for section in CHOSEN_PARTS:
                found |= {f"algo.{section}.{key}": "" for key in _keys_of(part.node, section)}
    return found


@cache
def _tree(file: Path) -> ast.Module:
    try:
        return ast.parse(_text(file))
    except (RecursionError, MemoryError):
        raise ConfigError(f"{file}: not a Python file (nested too deeply)") from None
    except SyntaxError as error:
        place = f"{file}, line {error.lineno}" if error.lineno else str(file)
        raise ConfigError(f"{place}: {error.msg}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}, {undecodable(error)}") from None
    except ValueError as error:
        raise ConfigError(f"{file}: not a Python file ({error})") from None


def _text(file: Path) -> str:
    """Returns the text of a Python file, whose first lines may name its encoding.

    Raises ConfigError if the file is too large, UnicodeDecodeError or SyntaxError if it cannot be decoded.
    """
    with file.open("rb") as opened:
        text = opened.read(MOST_BYTES + 1)
    if len(text) > MOST_BYTES:
        raise ConfigError(f"{file}: not a Python file (above {MOST_BYTES:,} bytes)")
    try:
        return decode_source(text)
    except SyntaxError:
        text.decode()  # its error names the line
        raise


def _registered(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for decorator in node.decorator_list:
        if not isinstance(decorator, ast.Call):
            continue
        function = ast.unparse(decorator.func).rpartition(".")[2]
        names = [word.value for word in decorator.args if isinstance(word, ast.Constant)]
        if function == "register" and len(names) == 2:
            yield str(names[0]), str(names[1])


def shared_settings(group: str) -> str | None:
    """Returns the name of the YAML file with settings that all parts `algo.<group>` have, or None if there is none."""
    if (CONF / "algo" / group / "_base.yaml").is_file():
        return "_base"
    return None


def _is_shipped(group: str, name: str) -> bool:
    """Returns whether rlrun has a YAML file for a part."""
    folders = (CONF / group, CONF / "algo" / group, CONF / "network" / group)
    return any((folder / f"{name}.yaml").is_file() for folder in folders)


def _base(node: ast.ClassDef, file: Path, group: str) -> str | None:
    """Returns the name of the nearest part of a group of which a class is a subclass, or None.

    The class of the part is one of the same file, or of a module of rlrun that the file imports.
    """
    for expression in node.bases:
        module, _, name = _imported(ast.unparse(expression), file).rpartition(".")
        home = file
        if module.startswith("rlrun."):
            home = RLRUN.joinpath(*module.split(".")).with_suffix(".py")
        elif module:
            continue
        if not home.is_file():
            continue
        for base in _tree(home).body:
            if not isinstance(base, ast.ClassDef) or base.name != name:
                continue
            if home == file and base.lineno >= node.lineno:
                continue
            for other_group, part in _registered(base):
                if other_group == group and (home == file or _is_shipped(group, part)):
                    return part
            return _base(base, home, group)
    return None


def _imported(name: str, file: Path) -> str:
    """Returns the full name of what a file imports under this name, which may have dots, or the name itself."""
    first, dot, rest = name.partition(".")
    for line in _tree(file).body:
        if isinstance(line, ast.ImportFrom | ast.Import):
            for alias in line.names:
                full = alias.name
                if isinstance(line, ast.ImportFrom):
                    full = f"{line.module}.{alias.name}"
                if first == (alias.asname or alias.name):
                    return full + dot + rest
    return name


def _config(node: ast.ClassDef) -> list[ast.AnnAssign | ast.Assign] | None:
    """Returns the settings in the inner class Config, or None if there is none."""
    for inner in _inner_config(node):
        lines = [line for line in inner.body if isinstance(line, ast.AnnAssign | ast.Assign)]
        return [line for line in lines if _key(line).isidentifier() and not _is_constant(line)]
    return None


def _inner_config(node: ast.ClassDef) -> Iterator[ast.ClassDef]:
    return (inner for inner in node.body if isinstance(inner, ast.ClassDef) and inner.name == "Config")


def _is_constant(line: ast.AnnAssign | ast.Assign) -> bool:
    """Returns whether a line of a Config is a constant. Other lines are settings; one without a type is an error."""
    if isinstance(line, ast.Assign):
        return CONSTANT.match(_key(line)) is not None
    return _key(line).startswith("_") or CLASS_VAR.match(ast.unparse(line.annotation)) is not None


def _assigned(node: ast.ClassDef, name: str) -> Iterator[ast.expr]:
    """Yields the values that are assigned to a class attribute."""
    for line in node.body:
        targets: list[ast.expr] = []
        if isinstance(line, ast.Assign):
            targets = line.targets
        elif isinstance(line, ast.AnnAssign):
            targets = [line.target]
        for target in targets:
            value = getattr(line, "value", None)
            if isinstance(target, ast.Name) and target.id == name and value is not None:
                yield value


def _keys_of(node: ast.ClassDef, section: str) -> Iterator[str]:
    """Yields the keys of a dict that is assigned to a class attribute, whether or not its values are valid."""
    for value in _assigned(node, section):
        if isinstance(value, ast.Dict):
            yield from (str(key.value) for key in value.keys if isinstance(key, ast.Constant))


def _are_strings(values: Iterable[object]) -> bool:
    return all(isinstance(value, str) for value in values)


def is_plain(value: object) -> bool:
    """Returns whether YAML can hold a value."""
    if isinstance(value, dict):
        return None not in value and all(map(is_plain, (*value.keys(), *value.values())))
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def _key(setting: ast.AnnAssign | ast.Assign) -> str:
    if isinstance(setting, ast.Assign):
        return ast.unparse(setting.targets[0])
    return ast.unparse(setting.target)
