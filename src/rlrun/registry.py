"""The only place where a string becomes an object.

A class registers itself under a group and a name; configs hold names. Rlrun's own parts are found by importing
the packages that hold them, a user's parts by the `rlrun.plugins` entry point or `plugins=[module]`.
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
    """Class decorator: `@register("algo", "sac")`. The class carries its `Config`, and from now on its name."""

    def add(cls: T) -> T:
        known = _registry.setdefault(group, {}).setdefault(name, cls)
        if known is not cls and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(f"{group} {name!r} is registered twice: {known.__module__} and {cls.__module__}")
        _registry[group][name] = cls
        cls.registered = name  # type: ignore[attr-defined]
        return cls

    return add


def load(plugins: Iterable[str] = ()) -> None:
    """Import everything that registers itself: rlrun's homes, installed plug-ins, and the modules named."""
    if "rlrun" not in _loaded:
        _loaded.add("rlrun")
        for home in HOMES:
            package = importlib.import_module(f"rlrun.{home}")
            for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
                importlib.import_module(module.name)
        load_installed()
    load_named(plugins)


def load_installed() -> None:
    """Import the plug-ins that are installed."""
    for entry in entry_points(group="rlrun.plugins"):
        entry.load()


def load_named(plugins: Iterable[str]) -> None:
    """Import the modules of `plugins=[...]`. Raises ConfigError."""
    for plugin in plugins:
        importing(plugin, "plugins")


def registered(group: str) -> dict[str, Any]:
    """What has been registered in a group so far, by name."""
    return dict(sorted(_registry.get(group, {}).items()))


def lookup(group: str, name: str) -> Any:
    """The class behind a name, or a ConfigError that suggests the nearest one."""
    load()
    names = _registry.get(group, {})
    if name not in names:
        near = difflib.get_close_matches(str(name), names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"{group}: unknown name {name!r}{hint} (registered: {', '.join(sorted(names))})")
    return names[name]


def build(group: str, values: dict[str, Any], *runtime: Any, path: str = "") -> Any:
    """Build the part that `values["name"]` names: its Config from the other values, then `cls(config, *runtime)`."""
    settings = {key: value for key, value in values.items() if key != "name"}
    cls, config = configured(group, values["name"], settings, path or group)
    return cls(config, *runtime)


def configured(group: str, name: str, settings: dict[str, Any], path: str) -> tuple[Any, Any]:
    """The class behind a name, and its Config made from the settings. The parts that the Config names are checked too,
    at any depth. Raises ConfigError with the faults of all."""
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
