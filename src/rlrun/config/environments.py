"""What Gymnasium knows under a name; gymnasium is imported only when a name is no preset of ours."""

import difflib
from collections.abc import Iterable
from importlib.util import find_spec

from rlrun import user_code


def fault(env_id: str, presets: Iterable[str]) -> str | None:
    """Why `env=<env_id>` cannot be had, with the nearest name, or None. `module:Id` is looked up when it is made."""
    module = user_code.module_of(env_id)
    if module is not None:
        return None if user_code.find(module) else f"env={env_id}: cannot find a package named {module!r}"
    if env_id.startswith("playground/"):  # its names are looked up when one is made, for it takes long to import
        return None if find_spec("mujoco_playground") else f"env={env_id}: needs an extra: pip install 'rlrun[jax]'"
    if env_id.startswith("rlrun/"):
        import rlrun.envs.make  # noqa: F401 (registers them; takes torch's second)
    registered = _registered()
    if env_id in registered:
        return None
    if env_id.startswith("ALE/") and not find_spec("ale_py"):
        return f"env={env_id}: Atari needs an extra: pip install 'rlrun[atari]'"
    near = _nearest(env_id, list(presets), registered)
    return f"env={env_id}: unknown environment{f'; did you mean {near}?' if near else ''} (rlrun list env)"


def _registered() -> list[str]:
    import gymnasium

    if find_spec("ale_py"):
        import ale_py

        gymnasium.register_envs(ale_py)
    return list(gymnasium.registry)


def _nearest(env_id: str, presets: list[str], registered: list[str]) -> str | None:
    """A preset, else an id of the same name in its newest version, else an id spelt alike."""
    names = {name.lower(): name for name in [*registered, *presets]}
    if env_id.lower() in names:
        return names[env_id.lower()]
    stem = env_id.lower().rpartition("-v")[0] or env_id.lower()
    for same in (stem, f"ale/{stem}"):
        if versions := [name for name in registered if name.lower().rpartition("-v")[0] == same]:
            return max(versions, key=lambda name: int(name.rpartition("-v")[2]))
    near = difflib.get_close_matches(env_id.lower(), names, n=1)
    return names[near[0]] if near else None
