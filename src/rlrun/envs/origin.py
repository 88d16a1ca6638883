"""Describes the environment of a data set, and compares it with the environment of a run.

Two environments are the same if a transition of one could also occur in the other: their id, wrappers, constructor
arguments and instance seed are equal. The time limit is not compared, because truncated episodes are marked as such.
Normalisation is not compared either, because data sets hold raw values.
"""

import inspect
import json
from typing import Any

from rlrun.envs.config import EnvConfig
from rlrun.envs.making.make import Recipe, entry_point

Origin = dict[str, Any]
ARGUMENTS = ("kwargs", "task_kwargs", "instance_seed")  # keys of an origin; older data sets lack them


def origin(cfg: EnvConfig, recipe: Recipe) -> Origin:
    """Returns a description of a config's environment as JSON values, without arguments that have default values."""
    defaults = {**_defaults(recipe), **recipe.spec.kwargs, "render_mode": cfg.kwargs.get("render_mode")}
    given = {key: value for key, value in cfg.kwargs.items() if key not in defaults or defaults[key] != value}
    values = {"id": cfg.id, "wrappers": cfg.wrappers, "kwargs": given, "task_kwargs": cfg.task_kwargs}
    plain: Origin = json.loads(json.dumps(values | {"instance_seed": cfg.instance_seed}, default=str))
    return plain


def is_elsewhere(recorded: object, here: Origin) -> bool:
    """Returns whether a data set was recorded in another environment, or under other wrappers."""
    return not isinstance(recorded, dict) or any(recorded.get(key) != here[key] for key in ("id", "wrappers"))


def difference(recorded: Origin, here: Origin) -> str | None:
    """Returns the first argument that differs, for example `env.kwargs.g=5, here the default`, or None."""
    for section in ARGUMENTS:
        if section not in recorded:
            continue
        then = recorded[section]
        now = here.get(section)
        if isinstance(then, dict):
            now = now or {}
            prefix = f"env.{section}."
        else:  # one value, such as the instance seed
            then = {section: then}
            now = {section: now}
            prefix = "env."
        for name in sorted({*then, *now}):
            if then.get(name) != now.get(name):
                return f"{prefix}{name}={_shown(then, name)}, here {_shown(now, name)}"
    return None


def _shown(values: dict[str, object], name: str) -> str:
    if name not in values:
        return "the default"
    return json.dumps(values[name])


def _defaults(recipe: Recipe) -> dict[str, object]:
    """Returns the default values of the constructor's parameters; parameters without a default are left out."""
    creator = entry_point(recipe.spec.entry_point or recipe.spec.vector_entry_point)
    try:
        parameters = inspect.signature(creator).parameters
    except (TypeError, ValueError):  # a constructor in C has no signature
        return {}
    return {name: one.default for name, one in parameters.items() if one.default is not one.empty}
