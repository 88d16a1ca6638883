"""Looks up environments in Gymnasium, which is imported only for names without a preset."""

from collections.abc import Iterable
from importlib.util import find_spec

from rlrun.config.check import closest, did_you_mean
from rlrun.config.declared import classes
from rlrun.errors import ConfigError
from rlrun.imports import advice, importing, is_found, is_path, module_of, source_of


def fault(env_id: str, presets: Iterable[str], plugins: Iterable[str] = ()) -> str | None:
    """Why there is no such environment, with the nearest name, or None. `module:Id` is looked up when it is made.

    The plug-ins are imported where the id is not known without them. Raises ConfigError for one that cannot be.
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
    if env_id.startswith("playground/"):  # its names are looked up when one is made, for it takes long to import
        if find_spec("mujoco_playground"):
            return None
        return f"env={env_id}: needs an extra{advice('jax')}"
    if env_id.startswith("rlrun/"):
        import rlrun.envs.builtin  # noqa: F401 (registers them)
    if env_id in _registered():
        return None
    if env_id in registered_by(plugins):
        return None
    registered = _registered()
    if env_id.startswith("ALE/") and not find_spec("ale_py"):
        return f"env={env_id}: Atari needs an extra{advice('ale_py')}"
    hint = did_you_mean(_nearest(env_id, list(presets), registered))
    return f"env={env_id}: unknown environment{hint} (rlrun list env)"


def _choices(path: str) -> str:
    """Words that choose the classes in a file. Raises ConfigError if there is no file, or if it is not Python."""
    try:
        file = source_of(path)
        assert file is not None
        return ", ".join(f"env={path}:{name}" for name in classes(file))
    except ConfigError as error:
        raise ConfigError(f"env={error}") from None


def registered_by(plugins: Iterable[str]) -> list[str]:
    """The ids that modules register with Gymnasium, which are imported for that. Raises ConfigError."""
    before = {*_registered()}
    for plugin in plugins:
        importing(plugin, "plugins")
    return [id for id in _registered() if id not in before]


def _registered() -> list[str]:
    import gymnasium

    if find_spec("ale_py"):
        import ale_py

        gymnasium.register_envs(ale_py)
    return list(gymnasium.registry)


def _nearest(env_id: str, presets: list[str], registered: list[str]) -> str | None:
    """A preset, else an id of the same name in its newest version, else one with a similar name."""
    names = {name.lower(): name for name in [*registered, *presets]}
    if env_id.lower() in names:
        return names[env_id.lower()]
    stem = env_id.lower().rpartition("-v")[0] or env_id.lower()
    for same in (stem, f"ale/{stem}"):
        if versions := [name for name in registered if name.lower().rpartition("-v")[0] == same]:
            return max(versions, key=lambda name: int(name.rpartition("-v")[2]))
    return closest(env_id, names.values())
