"""The only place where a string becomes an object.

A class registers itself under a group and a name; configs hold names. Rlrun's own parts are found by importing
the packages that hold them, a user's parts by the `rlrun.plugins` entry point or `plugins=[module]`.
"""

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Iterable
from importlib.metadata import entry_points
from typing import Any, TypeVar

from rlrun import user_code
from rlrun.config.schema import parse
from rlrun.errors import ConfigError

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
        for entry in entry_points(group="rlrun.plugins"):
            entry.load()
    for plugin in plugins:
        try:
            user_code.load(plugin)
        except ModuleNotFoundError as error:
            raise ConfigError(f"plugins: cannot import {plugin!r} ({error})") from error


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
    cls = lookup(group, values["name"])
    settings = {key: value for key, value in values.items() if key != "name"}
    return cls(parse(cls.Config, settings, path or group), *runtime)
