"""Turns names in a config into classes and objects. No other module does this.

A class registers itself under a group and a name; configs hold the names. The module of a part of rlrun is found by the
text of its `@register("group", "name")` line, and only that module is imported. A user's parts are registered when
their plug-in is imported: through the `rlrun.plugins` entry point or `plugins=[module]`.
"""

import importlib
import re
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from rlrun.errors import ConfigError, nearest
from rlrun.imports import import_named, installed_plugins
from rlrun.settings.configs import parse
from rlrun.settings.groups import GROUPS
from rlrun.settings.marks import parts_of

T = TypeVar("T", bound=Callable[..., object])

# packages with parts
ROOMS = (
    "core",
    "agents",
    "models",
    "networks",
    "buffers",
    "loops",
    "addons",
    "callbacks",
    "envs",
    "shards",
    "run",
    "telemetry",
)
REGISTERS = re.compile(r'^@register\("(\w+)", "(\w+)"\)$', re.MULTILINE)
_registry: dict[str, dict[str, Any]] = {}


def register(group: str, name: str) -> Callable[[T], T]:
    """Class decorator, as in `@register("algo", "sac")`. Sets the attribute `registered` of the class to the name.

    The class must have an inner class `Config`. Raises ValueError if another class has the same group and name.
    """

    def add(cls: T) -> T:
        classes = _registry.setdefault(group, {})
        known = classes.get(name, cls)
        module = modules().get(group, {}).get(name, known.__module__)
        if (module, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(f"{group} {name!r} is registered twice: {module} and {cls.__module__}")
        classes[name] = cls
        cls.registered = name  # type: ignore[attr-defined]
        return cls

    return add


@cache
def modules() -> dict[str, dict[str, str]]:
    """Returns the module of every part of rlrun, by group and name. Reads source files and imports nothing."""
    package = Path(__file__).parents[1]
    found: dict[str, dict[str, str]] = {}
    for room in ROOMS:
        for file in sorted((package / room).rglob("*.py")):
            parts = file.relative_to(package.parent).with_suffix("").parts
            for group, name in REGISTERS.findall(file.read_text("utf-8")):
                found.setdefault(group, {})[name] = ".".join(parts)
    return found


def load(plugins: Iterable[str] = ()) -> None:
    """Imports the user's parts: installed plug-ins and the modules in `plugins`. Raises ConfigError."""
    load_installed()
    if isinstance(plugins, str):
        raise ConfigError(f"plugins={plugins}: must be a list of modules")
    for plugin in plugins:
        import_named(plugin, "plugins")


@cache
def load_installed() -> None:
    """Imports the installed plug-ins: packages with the entry point `rlrun.plugins`."""
    for entry in installed_plugins():
        entry.load()


def names(group: str) -> list[str]:
    """Returns all names of a group, those of imported plug-ins included."""
    return sorted({*modules().get(group, ()), *_registry.get(group, ())})


def lookup(group: str, name: str) -> Any:
    """Returns the class registered under a name. Raises ConfigError, with the most similar name, if there is none."""
    load_installed()
    module = modules().get(group, {}).get(name)
    if module is not None:
        importlib.import_module(module)
    classes = _registry.get(group, {})
    if name not in classes:
        known = names(group)
        fault = f"{group}: unknown name {name!r}{nearest(str(name), known)}"
        raise ConfigError(f"{fault} (registered: {', '.join(known)}; plugins=[FILE] adds a file's)")
    cls = classes[name]
    if module is None:
        check_base(group, name, cls)
    return cls


def check_base(group: str, name: str, cls: object) -> None:
    """Raises ConfigError if the class of a user's part is no subclass of the base class of its group.

    Neither is a Config that lacks settings which the base class has. A function may take the place of a class.
    """
    if group not in GROUPS or not isinstance(cls, type):
        return
    place = f"{GROUPS[group].key}={name}"
    bases = {base: _imported(base) for base in GROUPS[group].bases}
    kinds = [base for base in bases.values() if issubclass(cls, base)]
    if not kinds:
        known = " or ".join(f"{base.__name__} ({path.partition(':')[0]})" for path, base in bases.items())
        raise ConfigError(f"{place}: {cls.__name__} is no {known}")
    shared: object = getattr(kinds[0], "Config", None)
    own: object = getattr(cls, "Config", shared)
    if not (isinstance(shared, type) and is_dataclass(shared) and fields(shared)):
        return
    if isinstance(own, type) and not issubclass(own, shared):
        above = kinds[0].__name__
        raise ConfigError(f"{place}: {cls.__name__} needs the settings of {above}: class Config({above}.Config)")


def _imported(path: str) -> type:
    """Returns the class `module:class`."""
    module, _, name = path.partition(":")
    found: type = getattr(importlib.import_module(module), name)
    return found


def known(group: str) -> dict[str, type]:
    """Returns the classes of a group by name that this process has imported or defined so far."""
    return dict(_registry.get(group, {}))


def registered(group: str) -> dict[str, Any]:
    """Returns all classes of a group by name, and imports their modules."""
    return {name: lookup(group, name) for name in names(group)}


def build(group: str, values: dict[str, Any], *runtime: object, path: str = "") -> Any:
    """Builds the part that `values["name"]` names: parses its Config from the other values and returns
    `cls(config, *runtime)`. Raises ConfigError."""
    settings = {key: value for key, value in values.items() if key != "name"}
    cls, config = configured(group, values["name"], settings, path or group)
    return cls(config, *runtime)


def configured(group: str, name: str, settings: dict[str, object], path: str) -> tuple[Any, Any]:
    """Returns the class registered under a name, and its Config parsed from the settings.

    Also checks the settings of all parts that the Config names, at any depth. Raises one ConfigError with all faults.
    """
    cls = lookup(group, name)
    if not is_dataclass(getattr(cls, "Config", None)):
        raise ConfigError(
            f"{path}: {cls.__module__}.{cls.__qualname__} needs a Config: an inner class that lists its settings "
            "(or holds `pass`), under @config of rlrun.settings"
        )
    faults: list[str] = []
    for field, part_group in parts_of(cls.Config).items():
        section = settings.get(field)
        if isinstance(section, dict) and "name" in section:
            own = {key: value for key, value in section.items() if key != "name"}
            try:
                configured(part_group, section["name"], own, f"{path}.{field}")
            except ConfigError as error:
                faults += error.faults
    try:
        config = parse(cls.Config, settings, path)
    except ConfigError as error:
        raise ConfigError(*error.faults, *faults) from None
    if faults:
        raise ConfigError(*faults)
    return cls, config
