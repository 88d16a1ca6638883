"""Turns names in a config into classes and objects. No other module does this.

A class registers itself under a group and a name, and configs hold the names. Rlrun's own parts are found by importing
the packages in `HOMES`; the parts of a user by the entry point `rlrun.plugins` or by `plugins=[module]`.
"""

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import is_dataclass
from importlib.metadata import entry_points
from typing import Any, TypeVar

from rlrun.config.schema import parse, parts_of
from rlrun.errors import ConfigError
from rlrun.imports import importing

T = TypeVar("T", bound=Callable[..., Any])

HOMES = ("agents", "networks", "buffers", "loops", "addons", "envs")
_registry: dict[str, dict[str, Any]] = {}
_loaded: set[str] = set()


def register(group: str, name: str) -> Callable[[T], T]:
    """Class decorator, as in `@register("algo", "sac")`. The class must have a `Config`; it gets the attribute
    `registered`, its name. Raises ValueError if another class has the same group and name."""

    def add(cls: T) -> T:
        known = _registry.setdefault(group, {}).setdefault(name, cls)
        if known is not cls and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(f"{group} {name!r} is registered twice: {known.__module__} and {cls.__module__}")
        _registry[group][name] = cls
        cls.registered = name  # type: ignore[attr-defined]
        return cls

    return add


def load(plugins: Iterable[str] = ()) -> None:
    """Imports everything that registers parts: rlrun's own packages, installed plug-ins, and the modules `plugins`."""
    if "rlrun" not in _loaded:
        _loaded.add("rlrun")
        for home in HOMES:
            package = importlib.import_module(f"rlrun.{home}")
            for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
                importlib.import_module(module.name)
        load_installed()
    load_named(plugins)


def load_installed() -> None:
    """Imports the installed plug-ins: packages with the entry point `rlrun.plugins`."""
    for entry in entry_points(group="rlrun.plugins"):
        entry.load()


def load_named(plugins: Iterable[str]) -> None:
    """Imports the modules of `plugins=[...]`. Raises ConfigError if one cannot be imported."""
    for plugin in plugins:
        importing(plugin, "plugins")


def registered(group: str) -> dict[str, Any]:
    """Returns the classes registered in a group so far, by name."""
    return dict(sorted(_registry.get(group, {}).items()))


def lookup(group: str, name: str) -> Any:
    """Returns the class registered under a name. Raises ConfigError, with the most similar name, if there is none."""
    load()
    names = _registry.get(group, {})
    if name not in names:
        near = difflib.get_close_matches(str(name), names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"{group}: unknown name {name!r}{hint} (registered: {', '.join(sorted(names))})")
    return names[name]


def build(group: str, values: dict[str, Any], *runtime: Any, path: str = "") -> Any:
    """Builds the part that `values["name"]` names: parses its Config from the other values and returns
    `cls(config, *runtime)`. Raises ConfigError."""
    settings = {key: value for key, value in values.items() if key != "name"}
    cls, config = configured(group, values["name"], settings, path or group)
    return cls(config, *runtime)


def configured(group: str, name: str, settings: dict[str, Any], path: str) -> tuple[Any, Any]:
    """Returns the class registered under a name, and its Config parsed from the settings.

    Also checks the settings of all parts that the Config names, at any depth. Raises one ConfigError with all faults.
    """
    cls = lookup(group, name)
    if not is_dataclass(getattr(cls, "Config", None)):
        raise ConfigError(
            f"{path}: {cls.__module__}.{cls.__qualname__} needs a Config: an inner class that lists its settings "
            "(or holds `pass`), under @config of rlrun.config.schema"
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
