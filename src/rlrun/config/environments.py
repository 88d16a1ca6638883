"""Looks up environments in Gymnasium. Gymnasium is only imported for names without a YAML file in `conf/env`."""

from collections.abc import Iterable
from importlib.util import find_spec

from rlrun.config.declared import classes
from rlrun.errors import ConfigError, closest, did_you_mean
from rlrun.imports import advice, import_named, is_found, is_path, module_of, source_of


def fault(env_id: str, presets: Iterable[str], plugins: Iterable[str] = ()) -> str | None:
    """Returns why there is no such environment, with the most similar name, or None if it exists.

    For `module:Id`, only the module is looked up here; the id is checked when the environment is created. If the id is
    unknown, the plug-ins are imported too, because they may register it. Raises ConfigError if one cannot be imported.
    """
    module = module_of(env_id)
    if env_id.endswith(".py"):
        return f"env={env_id}: name a class or an id in this file: {_choices(env_id)}"
    if module is not None and is_path(module):
        _choices(module)
        return None
    if module is not None:
        if is_found(module):
            return None
        return f"env={env_id}: cannot find a package named {module!r}{advice(module)}"
    if env_id.startswith("playground/"):  # slow to import, so the name is checked when the environment is created
        if find_spec("mujoco_playground"):
            return None
        return f"env={env_id}: needs an extra{advice('jax')}"
    from rlrun.envs.config import OBJECT, no_object  # imports pydantic

    if env_id.startswith(OBJECT) and env_id not in registered_ids():
        return no_object(env_id)
    if env_id.startswith("rlrun/"):
        import rlrun.envs.builtin  # noqa: F401 (registers rlrun's own environments)
    if env_id in registered_ids():
        return None
    if env_id in registered_by(plugins):
        return None
    registered = registered_ids()
    if env_id.startswith("ALE/") and not find_spec("ale_py"):
        return f"env={env_id}: Atari needs an extra{advice('ale_py')}"
    hint = did_you_mean(_nearest(env_id, list(presets), registered))
    return f"env={env_id}: unknown environment{hint} (rlrun list env)"


def _choices(path: str) -> str:
    """Returns what a user types to choose each class in a file. Raises ConfigError if there is no such Python file."""
    try:
        file = source_of(path)
        assert file is not None
        return ", ".join(f"env={path}:{name}" for name in classes(file))
    except ConfigError as error:
        raise ConfigError(f"env={error}") from None


def registered_by(plugins: Iterable[str]) -> list[str]:
    """Imports the modules and returns the ids that they register with Gymnasium.

    Raises ConfigError if a module cannot be imported.
    """
    before = {*registered_ids()}
    for plugin in plugins:
        import_named(plugin, "plugins")
    return [id for id in registered_ids() if id not in before]


def registered_ids() -> list[str]:
    """Returns all ids in Gymnasium's registry, with those of Atari if it is installed."""
    import gymnasium

    if find_spec("ale_py"):
        import ale_py

        gymnasium.register_envs(ale_py)
    return list(gymnasium.registry)


def _nearest(env_id: str, presets: list[str], registered: list[str]) -> str | None:
    """Returns the same name in other letter case, else the newest version of the same name, else a similar name."""
    names = {name.lower(): name for name in [*registered, *presets]}
    if env_id.lower() in names:
        return names[env_id.lower()]
    stem = env_id.lower().rpartition("-v")[0] or env_id.lower()
    for same in (stem, f"ale/{stem}"):
        versions = [name for name in registered if name.lower().rpartition("-v")[0] == same]
        if versions:
            return max(versions, key=lambda name: int(name.rpartition("-v")[2]))
    return closest(env_id, names.values())
