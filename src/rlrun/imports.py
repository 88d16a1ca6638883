"""Finds and imports the modules that a user names with `plugins=[module]` or `env=module:Id`.

Only these modules are searched for in the current folder. That folder may hold untrusted files that have the name of
an optional package and must not be imported in its place.
"""

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from rlrun.errors import ConfigError, reason

EXTRAS = {  # optional dependencies of rlrun: name of the extra, and the modules that it installs
    "atari": ("ale_py", "cv2"),
    "envpool": ("envpool",),
    "jax": ("jax", "mujoco_playground"),
    "box2d": ("Box2D",),
    "video": ("imageio_ffmpeg",),
    "data": ("minari", "h5py"),
    "export": ("onnx", "onnxscript", "onnxruntime"),
    "hub": ("huggingface_hub",),
    "robotics": ("gymnasium_robotics",),
    "dm_control": ("shimmy", "dm_control"),
    "wandb": ("wandb",),
    "mlflow": ("mlflow", "sqlalchemy", "alembic"),
}
PROJECTS = {  # other modules with environments: module, and its name for pip
    "minigrid": "minigrid",
    "highway_env": "highway-env",
    "flappy_bird_gymnasium": "flappy-bird-gymnasium",
    "minatar": "minatar",
    "mo_gymnasium": "mo-gymnasium",
    "bsuite": "bsuite",
    "pygame": "pygame-ce",
}
MULTI_AGENT = "pettingzoo"
SAFE_PATH = "PYTHONSAFEPATH"

_named: set[str] = set()  # top-level packages that were imported because the user named them


def module_of(env_id: str) -> str | None:
    """Returns the module of `module:Id`, which registers the environment, or None for an id without a module."""
    module, colon, _ = env_id.rpartition(":")
    return module if colon else None


def is_named(module: str) -> bool:
    """Returns whether a module belongs to a package that the user named and `importing` has imported."""
    return module.partition(".")[0] in _named


def named_packages() -> list[str]:
    """Returns the top-level packages that were imported because the user named them."""
    return sorted(_named)


def is_found(module: str) -> bool:
    """Returns whether the package that holds a module can be found. Imports nothing."""
    return _found(module) is not None


def homes(module: str) -> list[Path]:
    """Returns the folders of the package that holds a module, or [] if it is a single file. Imports nothing."""
    found = _found(module)
    return [Path(home) for home in found.submodule_search_locations or ()] if found else []


def importing(module: str, key: str) -> ModuleType:
    """Imports a module that the user named in the setting `key`. Raises ConfigError if the import fails."""
    try:
        with _current_folder_for(module):
            found = importlib.import_module(module)
    except ConfigError:
        raise
    except ModuleNotFoundError as error:
        raise ConfigError(f"{key}: cannot import {module!r} ({missing(error)})") from error
    except Exception as error:
        raise ConfigError(f"{key}: cannot import {module!r} ({reason(error, located=True)})") from error
    _named.add(module.partition(".")[0])
    return found


def missing(error: ModuleNotFoundError) -> str:
    """Returns the text of the error, which names the missing module, and how to install it if that is known."""
    return f"{error}{advice(error.name or '')}"


def advice(module: str) -> str:
    """Returns `; pip install <project>` for a module of a known project, else an empty string."""
    package = module.partition(".")[0]
    if package == MULTI_AGENT:
        return "; PettingZoo's environments are for several agents, which rlrun does not train"
    extra = next((extra for extra, modules in EXTRAS.items() if package in modules), None)
    if extra is not None:
        return f"; pip install 'rlrun[{extra}]'"
    return f"; pip install {PROJECTS[package]}" if package in PROJECTS else ""


def check_extra(extra: str, key: str) -> None:
    """Raises ConfigError unless the modules of an extra are installed. `key` is what needs them. Imports nothing."""
    lacking = [module for module in EXTRAS[extra] if _spec(module) is None]
    if lacking:
        raise ConfigError(f"{key}: needs {', '.join(lacking)}{advice(lacking[0])}")


def _found(module: str) -> ModuleSpec | None:
    with _current_folder_for(module):
        return _spec(module)


@contextmanager
def safe_path() -> Iterator[None]:
    """As a context manager, keeps Python processes that are started inside from importing from the current folder."""
    before = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"
    try:
        yield
    finally:
        os.environ.pop(SAFE_PATH, None)
        if before is not None:
            os.environ[SAFE_PATH] = before


@contextmanager
def _current_folder_for(module: str) -> Iterator[None]:
    """As a context manager, allows imports from the current folder, unless the module is installed."""
    if _spec(module) is not None:
        yield
        return
    folder = os.getcwd()
    sys.path.append(folder)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(folder)


def _spec(module: str) -> ModuleSpec | None:
    """Returns the spec of the module's top-level package, or None if it is not found or the name is invalid."""
    top = module.partition(".")[0]
    try:
        return find_spec(top) if top else None
    except (ImportError, ValueError):  # ValueError is raised for `__main__`
        return None
