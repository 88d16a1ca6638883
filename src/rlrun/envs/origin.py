"""The environment that a data set was recorded in, and whether another environment is the same.

Two environments are the same if a transition of one could be one of the other: the id, the wrappers, what the
constructor is given, and which problem is drawn. The time limit is left out, because a cut episode is marked as
truncated, and so is normalisation, because data sets hold raw values.
"""

import inspect
import json
from typing import Any

from rlrun.config.schema import EnvConfig
from rlrun.envs.make import Recipe, entry_point

Origin = dict[str, Any]
ARGUMENTS = ("kwargs", "task_kwargs", "instance_seed")  # arguments of the constructor; older data sets lack them


def origin(cfg: EnvConfig, recipe: Recipe) -> Origin:
    """The environments of a config, as JSON. Arguments that equal the constructor's defaults are left out."""
    defaults = {**_defaults(recipe), **recipe.spec.kwargs, "render_mode": cfg.kwargs.get("render_mode")}
    given = {key: value for key, value in cfg.kwargs.items() if key not in defaults or defaults[key] != value}
    values = {"id": cfg.id, "wrappers": cfg.wrappers, "kwargs": given, "task_kwargs": cfg.task_kwargs}
    plain: Origin = json.loads(json.dumps(values | {"instance_seed": cfg.instance_seed}, default=str))
    return plain


def is_elsewhere(recorded: Any, here: Origin) -> bool:
    """Whether a data set was recorded in another environment, or under other wrappers."""
    return not isinstance(recorded, dict) or any(recorded.get(key) != here[key] for key in ("id", "wrappers"))


def difference(recorded: Origin, here: Origin) -> str | None:
    """The first constructor argument that differs, like `env.kwargs.g=5, here the default`; None where none does."""
    for section in ARGUMENTS:
        if section not in recorded:
            continue
        then, now = recorded[section], here.get(section)
        if not isinstance(then, dict):
            then, now, key = {section: then}, {section: now}, "env."
        else:
            now, key = now or {}, f"env.{section}."
        for name in sorted({*then, *now}):
            if then.get(name) != now.get(name):
                return f"{key}{name}={_shown(then, name)}, here {_shown(now, name)}"
    return None


def _shown(values: dict[str, Any], name: str) -> str:
    if name not in values:
        return "the default"
    return json.dumps(values[name])


def _defaults(recipe: Recipe) -> dict[str, Any]:
    """The defaults of the constructor."""
    creator = entry_point(recipe.spec.entry_point or recipe.spec.vector_entry_point)
    try:
        parameters = inspect.signature(creator).parameters
    except (TypeError, ValueError):  # a constructor in C has no signature
        return {}
    return {name: one.default for name, one in parameters.items() if one.default is not one.empty}
