"""Data sets of episodes as folders in Minari's format: where they are, whether they are safe to read, their digest.

A data set may be untrusted. Everything in it must be a regular file, its metadata are checked before Minari reads
them, and an HDF5 file may point at no other file.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlrun import data_files
from rlrun.errors import ConfigError

DATA = Path("data")
ABOUT, HDF5 = DATA / "metadata.json", DATA / "main_data.hdf5"
FORMATS = ("hdf5", "arrow", "parquet")
ABOUT_LIMIT = 64 << 20  # bytes; spaces of large pictures, number by number, have 5 MB
FILES = 1 << 20  # of a data set, at most
RATIO, SMALL = 100, 64 << 20  # an HDF5 file may unpack to SMALL bytes, and to RATIO times its size
DEPTH = 32  # levels of groups in an HDF5 file, at most
MINARI_ID = re.compile(r"([-\w]+/)*[-\w]+-v\d+")


def located(key: str, place: str | Path) -> Path:
    """The folder of a data set: `place` itself, or where Minari keeps the data set of that name. Raises ConfigError."""
    folders = [Path(place)]
    known = MINARI_ID.fullmatch(str(place))
    if known:
        folders.append(minari_folder() / place)
    for folder in folders:
        if os.path.lexists(folder / ABOUT):
            return folder
    line = f"{key}={place}: holds no data set of episodes, as rlrun eval RUN record=demos-v0 writes it"
    if known:
        line += f"; one that is published comes with: minari download {place}"
    raise ConfigError(line)


def minari_folder() -> Path:
    """Where Minari keeps the data sets that it has downloaded or made."""
    return Path(os.environ.get("MINARI_DATASETS_PATH") or Path.home() / ".minari" / "datasets")


def digests(key: str, place: str | Path) -> dict[str, str]:
    """The SHA-256 of a data set by the key that names it, as Loop.digests has it: of the names and contents of its
    files, in the order of their names. Raises ConfigError."""
    folder = located(key, place)
    hasher = hashlib.sha256()
    try:
        for path in sorted(_files(folder)):
            name = path.relative_to(folder).as_posix()
            hasher.update(f"{name}\n{data_files.sha256(path, follow_links=False)}\n".encode())
    except OSError as error:
        raise ConfigError(f"{key}={place}: {_explained(error)}") from None
    return {f"{key}={place}": hasher.hexdigest()}


def about(named: str, folder: Path) -> dict[str, Any]:
    """The metadata of a data set. Raises ConfigError for one that is not safe to read.

    named: `key=value` of the config key that names it, for messages.
    """
    try:
        for _ in _files(folder):
            pass
        with data_files.open_data(folder / ABOUT, follow_links=False) as file:
            text = file.read(ABOUT_LIMIT + 1)
        if len(text) > ABOUT_LIMIT:
            raise ValueError(f"has more than {ABOUT_LIMIT:,} bytes")
        values = json.loads(text)
        _check_about(values)
    except OSError as error:
        raise ConfigError(f"{named}: {_explained(error)}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{named}: {ABOUT} cannot be read ({' '.join(str(error).split())})") from None
    if values["data_format"] == "hdf5":
        _check_hdf5(named, folder / HDF5, values["total_episodes"])
    return dict(values)


def _check_about(values: Any) -> None:
    if not isinstance(values, dict):
        raise ValueError("not an object of JSON")
    if values.get("data_format") not in FORMATS:
        raise ValueError(f"data_format={values.get('data_format')!r} is none of {', '.join(FORMATS)}")
    count = values.get("total_episodes")
    if type(count) is not int or count < 0:
        raise ValueError(f"total_episodes={count!r} is no count")
    if count == 0:
        raise ValueError("it holds no episodes")
    for key in ("observation_space", "action_space"):  # without them Minari makes the environment, and runs its code
        if not isinstance(values.get(key), str):
            raise ValueError(f"{key} is missing")


def _files(folder: Path) -> Iterator[Path]:
    """Every file of a data set. Raises OSError for a link, a pipe or a device."""
    waiting, count = [folder / DATA], 0
    if (folder / DATA).is_symlink():
        raise OSError(0, "is a symbolic link", str(folder / DATA))
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                count += 1
                if count > FILES:
                    raise OSError(0, f"holds more than {FILES:,} files", str(folder))
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))
                elif entry.is_file(follow_symlinks=False):
                    yield Path(entry.path)
                else:
                    raise OSError(0, "is not a regular file", entry.path)


def _check_hdf5(named: str, path: Path, episodes: int) -> None:
    """Raises ConfigError for a file that leads to other files, unpacks to far more than its size, or lacks episodes."""
    import h5py

    try:
        size = path.lstat().st_size
        with h5py.File(path, "r") as file:
            fault = _fault(file, SMALL + RATIO * size)
            if fault is None and f"episode_{episodes - 1}" not in file:
                fault = f"lacks some of the {episodes:,} episodes that {ABOUT} speaks of"
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        raise ConfigError(f"{named}: {HDF5} cannot be read ({_explained(error)})") from None
    if fault:
        raise ConfigError(f"{named}: {HDF5} {fault}")


def _fault(file: Any, most: int) -> str | None:
    """The fault of an open HDF5 file; None where all groups and arrays lie in it, each under one name, and the arrays
    unpack to at most `most` bytes.

    Visits groups in a loop: the visitors of the library are recursive, and a deep file would crash them.
    """
    from h5py import h5d, h5g, h5l, h5o

    waiting, seen, left = [(file.id, "", 0)], {h5o.get_info(file.id).addr}, most
    while waiting:
        group, path, depth = waiting.pop()
        for name in group:
            full = f"{path}/{name.decode(errors='replace')}"
            if group.links.get_info(name).type != h5l.TYPE_HARD:
                return f"holds a link, {full}, which may lead to another file"
            found = h5o.open(group, name)
            address = h5o.get_info(found).addr
            if address in seen:
                return f"holds {full} under another name too"
            seen.add(address)
            if isinstance(found, h5g.GroupID):
                if depth == DEPTH:
                    return f"has more than {DEPTH} levels at {full[:100]}"
                waiting.append((found, full, depth + 1))
            elif isinstance(found, h5d.DatasetID):
                layout = found.get_create_plist()
                if layout.get_external_count() or layout.get_layout() == h5d.VIRTUAL:
                    return f"keeps {full} in another file"
                left -= found.get_space().get_simple_extent_npoints() * found.get_type().get_size()
                if left < 0:
                    return f"unpacks to more than {most:,} bytes, which no data set of its size does"
    return None


def _explained(error: Exception) -> str:
    """One line about an error, with the file if it names one."""
    if not isinstance(error, OSError) or error.strerror is None:
        return " ".join(str(error).split())
    if not error.filename:
        return error.strerror
    return f"{error.filename}: {error.strerror}"
