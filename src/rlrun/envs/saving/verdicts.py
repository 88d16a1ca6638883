"""Stores the results of self-tests on disk, so that an environment need not be tested again in every run.

A verdict is about one id with its arguments and wrappers. It is valid as long as everything that the test imported is
unchanged: installed distributions must have the same versions, other files the same content. Stored files that are
damaged or that are not verdicts are ignored.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import platform
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rlrun.data_files import open_data
from rlrun.envs.making.make import Recipe
from rlrun.errors import ConfigError
from rlrun.imports import is_path
from rlrun.operating_system import cache_folder
from rlrun.settings import config, parse
from rlrun.snapshot.atomic import replace_text

MOST_BYTES = 1 << 20  # size limit of a verdict on disk; they usually have about 10 kB
MOST_FILES = 1000  # limit of the files of a verdict, because an untrusted verdict could list a whole disk
LARGE_BYTES = 8 << 20  # larger files, and compiled ones, are compared by size and modification time, not by content
STANDARD_LIBRARY = sysconfig.get_path("stdlib")
INSTALLED = ("site-packages", "dist-packages")


@config
class Verdict:
    """How an environment is saved, what else its self-test found, and the versions and files it depends on."""

    about: str | None  # the tested environment, from `subject`
    method: Literal["native", "replay", "episode end"]
    reason: str  # why the method is not native; empty if it is
    unrepeatable: str  # why equal seeds do not give equal episodes; empty if they do, or if it was not tested
    masked: bool | None  # whether it has action masks, in infos or from a method; None: not known
    gave_up_s: float | None  # the time limit that the test exceeded; None: the test was completed
    versions: dict[str, str]  # name -> version, of imported distributions
    files: dict[str, str]  # path -> fingerprint from `_content`, of other imported files and of files in arguments


_known: dict[str, Verdict] = {}  # verdicts that this process has kept or read, by `Verdict.about`
_recalled: dict[str, Verdict] = {}  # those that stored runs brought along, which anyone may have written


def subject(recipe: Recipe, num_envs: int | None = None) -> str | None:
    """Returns a text that identifies the tested environment, or None if an argument or class cannot be written as text.

    num_envs: the number of environments, if it is a vector env.
    """
    spec = recipe.spec
    try:
        about: dict[str, object] = {
            "id": recipe.id,
            "entry_points": [_name(spec.entry_point), _name(spec.vector_entry_point)],
            "kwargs": spec.kwargs | recipe.kwargs,
            "wrappers": [[_name(wrapper), dataclasses.asdict(settings)] for wrapper, settings in recipe.wrappers],
            "registered_wrappers": spec.additional_wrappers,
            "max_episode_steps": [spec.max_episode_steps, recipe.max_episode_steps],
            "instance_seed": recipe.instance_seed,
            "action_mask": recipe.masked is None,
            "num_envs": num_envs,
            "python": platform.python_version(),
        }
        if named := _named_files(recipe.kwargs):  # a relative path names another file in another folder
            about["named"] = named
        files = [module for module in recipe.modules if is_path(module)]
        if files:  # paths, because another folder may hold a file of the same name
            about["files"] = files
        return json.dumps(about, sort_keys=True)
    except (TypeError, ValueError, AttributeError):
        return None


def known(about: str | None, timeout_s: float) -> Verdict | None:
    """Returns the verdict of an earlier test if it is still valid, else None.

    A verdict on a test that timed out is not valid if `timeout_s` is longer than the limit of that test.
    """
    return _valid(about, timeout_s, (_known.get, _brought_along, _read))


def is_known(about: str | None) -> bool:
    """Returns whether this machine has tested this environment and the verdict is still valid.

    A test that timed out counts, whatever its limit was.
    """
    return _valid(about, 0.0, (_known.get, _read)) is not None


def _valid(about: str | None, timeout_s: float, finds: Sequence[Callable[[str], Verdict | None]]) -> Verdict | None:
    if about is None:
        return None
    for find in finds:
        found = find(about)
        if found is None or found.about != about or not _holds(found):
            continue
        if found.gave_up_s is None or timeout_s <= found.gave_up_s:
            if find is _read:
                _known[about] = found
            return found
    return None


def keep(verdict: Verdict) -> None:
    """Stores a verdict in this process and on disk.

    Does nothing if its validity could not be checked later: if the environment cannot be written as text, or if a
    version or the content of a file is not known.
    """
    needed = {**verdict.versions, **verdict.files}
    if verdict.about is None or not needed or not all(needed.values()):
        return
    _known[verdict.about] = verdict
    path = _path(verdict.about)
    with contextlib.suppress(OSError):  # if the cache cannot be written, the next run tests again
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_text(path, json.dumps(dataclasses.asdict(verdict)))


def recall(values: object) -> None:
    """Adds the verdict that a stored run brought along, for this process only. Ignores values that are no verdict."""
    verdict = _parsed(values)
    if verdict is not None and verdict.about is not None:
        _recalled[verdict.about] = verdict


def imported() -> list[tuple[str, str]]:
    """Returns the names and paths of all modules that this process has imported, except Python's own."""
    found = []
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and not _is_standard(path):
            found.append((module.__name__, os.path.abspath(path)))
    return found


def needs(modules: list[tuple[str, str]], arguments: dict[str, object]) -> tuple[dict[str, str], dict[str, str]]:
    """Returns what a verdict depends on: `Verdict.versions` and `Verdict.files`.

    modules: from `imported`, in the process of the test. arguments: of the environment, which may name files.
    """
    versions: dict[str, str] = {}
    files = {path: _content(path) for path in _named_files(arguments)}
    for name, path in modules:
        owner = _owner(path, name.partition(".")[0])
        if owner is None:
            files[path] = _content(path)
        else:
            versions[owner.name] = owner.version
    return versions, files


def other_versions(versions: Mapping[str, str]) -> list[str]:
    """Returns `name old -> new` for each distribution whose version in this process is not that of `versions`."""
    now = {name: _version(name) for name in versions}
    return [f"{name} {version} -> {now[name]}" for name, version in versions.items() if now[name] != version]


def _named_files(arguments: Mapping[str, object]) -> list[str]:
    """Returns the absolute paths of the files that arguments name."""
    named = [value for value in arguments.values() if isinstance(value, str) and os.path.isfile(value)]
    return sorted(map(os.path.abspath, named))


def _brought_along(about: str) -> Verdict | None:
    """Returns a verdict from `recall`, unless it names other files than imported modules and those of the arguments.

    A stored run may name any file of this machine, which would be read to compare its content.
    """
    found = _recalled.get(about)
    if found is None:
        return None
    paths = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    known = {os.path.abspath(path) for path in paths if isinstance(path, str)}
    if found.files.keys() <= known | {*json.loads(about).get("named", ())}:
        return found
    return None


def _name(entry: Any) -> str | None:
    """Returns `module:name` of a class. Raises TypeError if other processes cannot import the class."""
    if entry is None or isinstance(entry, str):
        return entry
    if entry.__module__ == "__main__" or "<" in entry.__qualname__:
        raise TypeError(entry)
    return f"{entry.__module__}:{entry.__qualname__}"


def _read(about: str) -> Verdict | None:
    try:
        return _parsed(json.loads(_bytes(_path(about), MOST_BYTES)))
    except (OSError, ValueError, RecursionError):
        return None


def _parsed(values: object) -> Verdict | None:
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        return None
    try:
        verdict = parse(Verdict, values, "")
    except ConfigError:
        return None
    if not (verdict.reason + verdict.unrepeatable).isprintable() or len(verdict.files) > MOST_FILES:
        return None
    return verdict


def _path(about: str) -> Path:
    return cache_folder() / "selftest" / f"{hashlib.sha256(about.encode()).hexdigest()}.json"


def _holds(verdict: Verdict) -> bool:
    """Returns whether the versions and files that a verdict depends on are unchanged."""
    if other_versions(verdict.versions):
        return False
    return all(_content(path) == content for path, content in verdict.files.items())


class Installation(NamedTuple):
    """An installed distribution. The files of an editable installation do not include its modules."""

    name: str
    version: str
    folder: str  # the real path of the folder that `files` are relative to
    files: frozenset[str]


@functools.cache
def _version(name: str) -> str | None:
    try:
        return distribution(name).version
    except (PackageNotFoundError, ValueError):
        return None


@functools.cache
def _owner(path: str, package: str) -> Installation | None:
    """Returns the distribution that the file of a module belongs to, or None if no distribution lists it.

    package: the first part of the module's name.
    """
    owner = _installation(package)
    if not owner.files:
        return None
    real = os.path.join(_real_folder(os.path.dirname(path)), os.path.basename(path))
    if os.path.islink(real):
        real = os.path.realpath(real)
    # modules such as torch.ops name a file that does not exist
    if real.removeprefix(owner.folder) in owner.files or not os.path.exists(path):
        return owner
    return None


@functools.cache
def _real_folder(folder: str) -> str:
    """Returns the real path of a folder, which hundreds of modules share."""
    return os.path.realpath(folder)


@functools.cache
def _installation(package: str) -> Installation:
    """Returns the distribution with the name of a package; without files if no distribution has that name."""
    try:
        found = distribution(package)
    except (PackageNotFoundError, ValueError):
        return Installation(package, "", "", frozenset())
    about = found.metadata
    listed = (found.read_text("RECORD") or "").splitlines()
    folder = os.path.join(os.path.realpath(str(found.locate_file(""))), "")
    files = frozenset(line.partition(",")[0] for line in listed)
    return Installation(about["Name"], about["Version"], folder, files)


def _is_standard(path: str) -> bool:
    return path.startswith(STANDARD_LIBRARY + os.sep) and not any(
        f"{os.sep}{name}{os.sep}" in path for name in INSTALLED
    )


def _content(path: str) -> str:
    """Returns a fingerprint of the content of a file, or "" if the file cannot be read."""
    try:
        about = os.stat(path)
        return _digest(path, about.st_size, about.st_mtime_ns)
    except (OSError, ValueError):
        return ""


@functools.cache
def _digest(path: str, size: int, changed_ns: int) -> str:
    if size > LARGE_BYTES or path.endswith(".so"):
        return f"{size} bytes of {changed_ns}"
    return hashlib.sha256(_bytes(path, LARGE_BYTES)).hexdigest()


def _bytes(path: str | Path, most: int) -> bytes:
    """Returns the content of a regular file. Raises OSError if it cannot be read, ValueError if it is too large."""
    with open_data(Path(path)) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"{path}: larger than {most} bytes")
    return content
