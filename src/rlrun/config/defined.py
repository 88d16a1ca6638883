"""What the program that calls `rlrun.train` registers itself: a script, or the cells of a notebook.

Such a class has no file that could be read without an import, but it is there, so its settings are read from itself.
"""

import sys
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rlrun.config import check
from rlrun.config.declared import CHOSEN_PARTS, is_plain, registered_group, shared_settings
from rlrun.errors import ConfigError

PROGRAM = "__main__"
REGISTRY = "rlrun.settings.registry"  # looked up and not imported, because it imports pydantic


class Defined(NamedTuple):
    """A class of the program that it registers with `@register(group, name)`. Its properties are those of Declared."""

    group: str
    name: str
    cls: type

    @property
    def file(self) -> Path:
        """The script, or a path that names the notebook."""
        return Path(getattr(sys.modules[PROGRAM], "__file__", None) or "notebook")

    @property
    def yaml_file(self) -> None:
        return None

    @property
    def base(self) -> str | None:
        if self.group == "algo" and any(part in vars(self.cls) for part in CHOSEN_PARTS):
            return None
        known = _known(self.group)
        parent = next((cls for cls in self.cls.__mro__[1:] if cls in known), None)
        if parent is not None:
            return known[parent]
        return shared_settings(self.group)

    def values(self) -> dict[str, object]:
        inherited: set[str] = set()
        if self.base is not None:
            bases = [cls for cls in self.cls.__mro__[1:] if hasattr(cls, "Config")]
            inherited = {field.name for cls in bases for field in _settings(cls)}
        if not is_dataclass(getattr(self.cls, "Config", None)):
            raise ConfigError(f"{self.group}={self.name}: class {self.cls.__name__} needs an inner class Config")
        found: dict[str, object] = {}
        for field in _settings(self.cls):
            value: object = check.MISSING
            if field.default is not MISSING:
                value = field.default
            elif field.default_factory is not MISSING:
                value = field.default_factory()
            elif field.name in inherited:
                continue  # the settings of the base class hold its value
            if not is_plain(value):
                why = "must consist of numbers, strings, lists and dicts"
                raise ConfigError(f"{self.group}={self.name}: the value of {field.name} {why}")
            found[field.name] = value
        return found

    def chosen_parts(self) -> dict[str, dict[str, Any]]:
        found = {}
        for part, example in CHOSEN_PARTS.items():
            section = vars(self.cls).get(part)
            if section is None:
                continue
            if not (isinstance(section, dict) and is_plain(section) and isinstance(section.get("name"), str)):
                raise ConfigError(f"algo={self.name}: {part} must be a section such as {{'name': '{example}'}}")
            found[part] = dict(section)
        if "loop" not in found and self.base is None:
            raise ConfigError(
                f"algo={self.name}: class {self.cls.__name__} needs its loop, as the class attribute "
                "loop = {'name': 'onpolicy', 'rollout_steps': 32}, or a shipped algorithm as its base class"
            )
        return found


def defined(group: str) -> list[Defined]:
    """Returns the classes of the program in a group. group: as in `declared.find`."""
    if REGISTRY not in sys.modules:
        return []
    name = registered_group(group)
    known = sys.modules[REGISTRY].known(name)
    return [Defined(name, own, cls) for own, cls in known.items() if cls.__module__ == PROGRAM]


def find(group: str, name: str) -> Defined | None:
    """Returns the class of this name that the program registers, or None. group: as in `declared.find`."""
    return next((part for part in defined(group) if part.name == name), None)


def _known(group: str) -> dict[type, str]:
    """Returns the names of the parts of a group that this process has imported, by class."""
    return {cls: name for name, cls in sys.modules[REGISTRY].known(group).items()}


def _settings(cls: type) -> "tuple[Field[object], ...]":
    """Returns the fields of the Config of a class."""
    return fields(getattr(cls, "Config", cls))
