"""Finds and imports the modules that a user names with `plugins=[module]` or `env=module:Id`.

A reference is the name of a module (`my_env`) or a path: of a Python file (`./my_env.py`), or of a folder with an
`__init__.py` (`./my_package`). Only these modules, and those that they import themselves, are searched for in their
folder. That folder may hold untrusted files that have the name of an optional package and must not be imported in its
place.
"""

import hashlib
import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import EntryPoints, entry_points
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from traceback import walk_tb
from types import FrameType, ModuleType
from typing import ClassVar, NamedTuple

from rlrun.errors import ConfigError, headline, reason

EXTRAS = {  # optional dependencies of rlrun: name of the extra, and the modules that it installs
    "atari": ("ale_py", "cv2"),
    "envpool": ("envpool",),
    "jax": ("jax", "mujoco_playground"),
    "box2d": ("Box2D",),
    "video": ("imageio_ffmpeg",),
    "data": ("minari", "h5py"),
    "lz4": ("lz4",),
    "export": ("onnx", "onnxscript", "onnxruntime"),
    "hub": ("huggingface_hub",),
    "robotics": ("gymnasium_robotics",),
    "dm-control": ("shimmy", "dm_control"),  # pip before 23.3 finds no extra with an underscore
    "wandb": ("wandb",),
    "mlflow": ("mlflow", "sqlalchemy", "alembic"),
    "sweep": ("optuna", "cmaes"),
    "slurm": ("submitit",),
    "ray": ("ray",),
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
PLUGINS = "rlrun.plugins"  # group of the entry points of plug-ins
SAFE_PATH = "PYTHONSAFEPATH"
IMPORT_SYSTEM = ("importlib", "_frozen_importlib", "_frozen_importlib_external")

_named: set[str] = set()  # top-level packages that were imported because the user named them


class Code(NamedTuple):
    """An imported file or folder of the user."""

    typed: str  # path as the user typed it
    path: Path  # absolute path
    digest: str  # SHA-256 of its text when it was imported


_code: dict[str, Code] = {}  # key: name of the module


class Neighbours:
    """Finds modules in the folder of a module that the user named, for import statements in modules of that folder.

    Such an import works at any time, even within a method, as it does if Python runs a file of the folder. Imports by
    rlrun, by libraries, and by modules of other folders do not search the folder. This finder is the last one, so
    installed modules take precedence.
    """

    folders: ClassVar[set[str]] = set()  # those of the modules that the user named and that are not installed

    @classmethod
    def serve(cls, folder: str) -> None:
        """Lets the modules of a folder import each other."""
        cls.folders.add(folder)
        importlib.invalidate_caches()
        if cls not in sys.meta_path:
            sys.meta_path.append(cls)

    @classmethod
    def find_spec(cls, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Returns the spec of a top-level module in the folder of the importing module, or None."""
        if path is not None:
            return None
        importer = sys.modules.get(_importer())
        if importer is None:
            return None
        origin = _origin(importer)
        if not origin:
            return None
        folder = Path(origin).parent
        searched = [str(folder)]
        if Path(origin).name == "__init__.py":  # a package also imports the modules beside its own folder
            searched.append(str(folder.parent))
        return PathFinder.find_spec(name, [folder for folder in searched if folder in cls.folders])


def _importer() -> str:
    """Returns the top-level package (or the module) in which the import statement in progress stands; "" if unknown."""
    frame: FrameType | None = sys._getframe(2)  # the caller of `find_spec`, which calls this function
    while frame is not None:
        name = str(frame.f_globals.get("__name__")).partition(".")[0]
        if name not in IMPORT_SYSTEM:
            return name
        frame = frame.f_back
    return ""


@cache
def installed_plugins() -> EntryPoints:
    """Returns the entry points of the installed plug-ins. Imports nothing."""
    return entry_points(group=PLUGINS)


def module_of(env_id: str) -> str | None:
    """Returns the module of `module:Id`, which registers the environment, or None for an id without a module."""
    module, colon, _ = env_id.rpartition(":")
    if not colon:
        return None
    return module


def is_path(reference: str) -> bool:
    """Returns whether a reference is the path of a file or a folder, not the name of a module."""
    return "/" in reference or os.sep in reference or reference.endswith(".py")


def name_of(reference: str) -> str:
    """Returns the name under which a module is imported: for a path, the name of the file without its ending."""
    if is_path(reference):
        return Path(reference).name.removesuffix(".py")
    return reference


def source_of(reference: str) -> Path | None:
    """Returns the Python file of a reference, `__init__.py` for a package. Imports nothing.

    Returns None if the module is not found, or has no such file. Raises ConfigError for a path without a Python file.
    """
    if is_path(reference):
        return _file(reference)
    found = _found(reference)
    if found is None or not (found.origin or "").endswith(".py"):
        return None
    return Path(str(found.origin))


def named_packages() -> list[str]:
    """Returns the packages, and the paths of files and folders, that were imported because the user named them."""
    return [*sorted(_named), *(str(code.path) for code in _code.values())]


def is_there(reference: str) -> bool:
    """Returns whether a module can be found, or whether a path exists. Imports nothing."""
    if is_path(reference):
        return Path(reference).exists()
    return is_found(reference)


def is_found(module: str) -> bool:
    """Returns whether the package that holds a module can be found. Imports nothing."""
    return _found(module) is not None


def homes(reference: str) -> list[Path]:
    """Returns the folders of the package that holds a module; [] if it is a single file. Imports nothing."""
    if is_path(reference):
        file = _file(reference)
        if file.name == "__init__.py":
            return [file.parent]
        return []
    found = _found(reference)
    if found is None or found.submodule_search_locations is None:
        return []
    return [Path(home) for home in found.submodule_search_locations]


def import_named(reference: str, key: str) -> ModuleType:
    """Imports a module that the user named under `key`. Raises ConfigError if the import fails for any reason."""
    try:
        if is_path(reference):
            return _from_file(reference, key)
        if _spec(reference) is None:
            Neighbours.serve(os.getcwd())
        with _current_folder_for(reference):
            found = importlib.import_module(reference)
    except ConfigError:
        raise
    except ModuleNotFoundError as error:
        remedy = _package_advice(reference, error)
        raise ConfigError(f"{key}: cannot import {reference!r} ({missing(error)}){remedy}") from error
    except (Exception, SystemExit) as error:  # a script may call sys.exit
        remedy = _package_advice(reference, error)
        raise ConfigError(f"{key}: cannot import {reference!r} ({reason(error, located=True)}){remedy}") from error
    _named.add(reference.partition(".")[0])
    return found


def reference_of(module: str) -> str | None:
    """Returns what another process must import to have this module; None if the user did not name its package."""
    top = module.partition(".")[0]
    if top in _code:
        return str(_code[top].path)
    if top in _named:
        return module
    return None


def traced(error: BaseException) -> str:
    """Returns an exception as one line, which ends with the place in a module that the user named, if there is one.

    That is the innermost place in the traceback.
    """
    frames = [(str(frame.f_globals.get("__name__")), number) for frame, number in walk_tb(error.__traceback__)]
    own = [(name, number) for name, number in frames if reference_of(name) is not None]
    if not own:
        return reason(error)
    name, number = own[-1]
    return f"{headline(error)} in {name}, line {number}"


def typed_again(reference: str) -> str | None:
    """Returns how this process must refer to a module that a stored config names; None if the user did not name it.

    Installed plug-ins count as named by the user; modules that merely a library has imported do not. For a path, the
    name of the file must be the same, but the file may have moved to another folder. The stored path is not read.
    """
    if is_path(reference):
        code = _code.get(name_of(reference))
        if code is None:
            return None
        return code.typed
    plugins = {entry.module.partition(".")[0] for entry in installed_plugins()}
    if reference not in sys.modules or reference.partition(".")[0] not in _named | plugins:
        return None
    return reference


def digests() -> dict[str, str]:
    """Returns the SHA-256 of every file and folder that was imported because the user typed its path, by that path."""
    return {code.typed: code.digest for code in _code.values()}


def sources() -> list[Path]:
    """Returns the absolute path of every file and folder that was imported because the user typed its path."""
    return [code.path for code in _code.values()]


def changed(before: dict[str, str]) -> list[str]:
    """Returns the paths of imported files whose text differs from that in `before`, an earlier result of `digests`."""
    earlier = {name_of(path): digest for path, digest in before.items()}
    return [code.typed for name, code in _code.items() if earlier.get(name, code.digest) != code.digest]


def missing(error: ModuleNotFoundError) -> str:
    """Returns the text of the error, which names the missing module, and how to install it if that is known."""
    return f"{error}{advice(error.name or '')}"


def advice(module: str) -> str:
    """Returns advice about a module that is not installed, such as `; pip install minigrid`; "" for unknown modules."""
    package = module.partition(".")[0]
    if package == MULTI_AGENT:
        return "; PettingZoo's environments are for several agents, which rlrun does not train"
    extra = next((extra for extra, modules in EXTRAS.items() if package in modules), None)
    if extra is not None:
        return f"; pip install 'rlrun[{extra}]'"
    if package in PROJECTS:
        return f"; pip install {PROJECTS[package]}"
    return ""


def _package_advice(reference: str, error: BaseException) -> str:
    """Returns advice about a failed import, or "".

    A file that is a part of a package cannot import the package if it is named by its path, only if it is named as a
    module.
    """
    if not is_path(reference) or not isinstance(error, ImportError):
        return ""
    file = _file(reference)
    module = file.with_suffix("")
    if file.name == "__init__.py":
        module = file.parent
    package = module.parent
    while (package.parent / "__init__.py").is_file():
        package = package.parent
    imports_package = error.name == package.name or "relative import" in str(error)
    if not imports_package:
        return ""
    name = ".".join(module.relative_to(package.parent).parts)
    return f"; it is a part of a package: name it {name} in place of {reference}, in the folder {package.parent}"


def check_extra(extra: str, key: str) -> None:
    """Raises ConfigError unless the modules of an extra are installed. Imports nothing. key: what needs them."""
    lacking = [module for module in EXTRAS[extra] if _spec(module) is None]
    if lacking:
        raise ConfigError(f"{key}: needs {', '.join(lacking)}{advice(lacking[0])}")


def _file(path: str) -> Path:
    """Returns the absolute path of the Python file of a reference. Raises ConfigError if there is none."""
    file = Path(os.path.abspath(path))
    if file.is_dir():
        if not (file / "__init__.py").is_file():
            raise ConfigError(f"{path}: has no __init__.py; name a file in this folder: {Path(path, 'my_file.py')}")
        file = file / "__init__.py"
    elif file.name == "__init__.py":
        raise ConfigError(f"{path}: name its folder instead: {Path(path).parent}/")
    if not file.is_file():
        raise ConfigError(f"{path}: no such file")
    if file.suffix != ".py":
        raise ConfigError(f"{path}: must be a Python file, ending in .py, or a folder with an __init__.py")
    return file


def _from_file(path: str, key: str) -> ModuleType:
    """Returns the module of a file or folder. Imports it in the first call."""
    file = _file(path)
    name = name_of(os.path.abspath(path))
    place = file
    if file.name == "__init__.py":
        place = file.parent
    code = Code(typed=path, path=place, digest=_digest(file))
    known = _code.get(name)
    if known is None:
        module = _executed(file, name, key)
        _code[name] = code
        return module
    if known.path != code.path:
        raise ConfigError(f"{key}: {known.path} and {code.path} have the same name; rename one of them")
    if known.digest != code.digest:
        raise ConfigError(f"{key}: {path} has changed since this process imported it; start a new process")
    return sys.modules[name]


def _executed(file: Path, name: str, key: str) -> ModuleType:
    """Returns the module of a file, which is executed unless it has been imported already.

    The file can import modules in its folder.
    """
    if not name.isidentifier():
        raise ConfigError(f"{key}: {file}: {name!r} cannot be the name of a module; use letters, digits and _")
    other = other_of(name, file)
    if other is not None:
        raise ConfigError(f"{key}: {file} has the name of another module, {other}; rename the file")
    present = sys.modules.get(name)
    if present is not None and _origin(present) is not None:  # of this file, as `other_of` has found no other
        return present
    folders = None
    if file.name == "__init__.py":
        folders = [str(file.parent)]
    spec = spec_from_file_location(name, file, submodule_search_locations=folders)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    Neighbours.serve(str(file.parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def other_of(name: str, file: Path) -> str | None:
    """Returns the origin of another module with this name, which is its file or `built-in`; None if there is none."""
    spec = _spec(name)
    origin = None
    if name in sys.modules:
        origin = _origin(sys.modules[name])
    elif spec is not None and spec.loader is not None:  # a folder without __init__.py has none
        origin = spec.origin
    if origin is None or os.path.realpath(origin) == os.path.realpath(file):
        return None
    return origin


def _origin(module: ModuleType) -> str | None:
    """Returns the file of an imported module, or `built-in`; None for a folder without __init__.py."""
    if hasattr(module, "__path__"):
        return getattr(module, "__file__", None)
    return getattr(module, "__file__", "built-in")


def _digest(file: Path) -> str:
    """Returns the SHA-256 of a Python file; for an `__init__.py`, that of all Python files below its folder."""
    if file.name != "__init__.py":
        return hashlib.sha256(file.read_bytes()).hexdigest()
    text = hashlib.sha256()
    for part in sorted(file.parent.rglob("*.py")):
        text.update(f"{part.relative_to(file.parent)}\0".encode())
        text.update(hashlib.sha256(part.read_bytes()).digest())
    return text.hexdigest()


def _found(module: str) -> ModuleSpec | None:
    with _current_folder_for(module):
        return _spec(module)


@contextmanager
def safe_path() -> Iterator[None]:
    """As a context manager, prevents child processes from importing modules in the current folder."""
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
    with _on_path(os.getcwd()):
        yield


@contextmanager
def _on_path(folder: str) -> Iterator[None]:
    """As a context manager, allows imports from a folder. Installed modules of the same name take precedence."""
    sys.path.append(folder)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(folder)


def _spec(module: str) -> ModuleSpec | None:
    """Returns the spec of the module's top-level package, or None if it is not found or the name is invalid."""
    top = module.partition(".")[0]
    if not top:
        return None
    try:
        return find_spec(top)
    except (ImportError, ValueError):  # ValueError is raised for `__main__`
        return None
