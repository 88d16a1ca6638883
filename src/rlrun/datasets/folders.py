"""Locates data sets in Minari's format, checks that they are safe to read, and computes their digests.

A data set may be untrusted. It may contain only folders and regular files, its metadata are checked before Minari reads
them, and its HDF5 file must not refer to other files.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlrun import data_files
from rlrun.errors import ConfigError

if TYPE_CHECKING:
    from h5py import Dataset
    from h5py.h5t import TypeID

DATA = Path("data")
ABOUT, HDF5 = DATA / "metadata.json", DATA / "main_data.hdf5"
FORMATS = ("hdf5", "arrow", "parquet")
ABOUT_LIMIT = 64 << 20  # bytes of metadata; the bounds of a space of large images take 5 MB
FILES = 1 << 20  # the most files of a data set
# an HDF5 file may unpack to at most SMALL bytes plus RATIO times its size
SMALL = 64 << 20
RATIO = 100
DEPTH = 32  # the most levels of groups in an HDF5 file
MINARI_ID = re.compile(r"([-\w]+/)*[-\w]+-v\d+")


def located(key: str, place: str | Path) -> Path:
    """Returns the folder of a data set: `place` itself, or the folder in which Minari keeps the data set of that name.

    Raises ConfigError if there is no data set in either.
    """
    folders = [Path(place)]
    known = MINARI_ID.fullmatch(str(place))
    if known:
        folders.append(minari_folder() / place)
    for folder in folders:
        if os.path.lexists(folder / ABOUT):
            return folder
    line = f"{key}={place}: holds no data set of episodes; rlrun eval RUN record=demos-v0 records one"
    if known:
        line += f"; a published one can be downloaded with: minari download {place}"
    raise ConfigError(line)


def minari_folder() -> Path:
    """Returns the folder in which Minari keeps its data sets, $MINARI_DATASETS_PATH or ~/.minari/datasets."""
    return Path(os.environ.get("MINARI_DATASETS_PATH") or Path.home() / ".minari" / "datasets")


def digests(key: str, place: str | Path) -> dict[str, str]:
    """Returns {"key=place": SHA-256 of the data set}, an entry for `Loop.digests`.

    The hash covers the names and contents of all files, in the order of their names. Raises ConfigError if the data
    set cannot be read.
    """
    folder = located(key, place)
    hasher = hashlib.sha256()
    try:
        for path in sorted(_files(folder)):
            name = path.relative_to(folder).as_posix()
            hasher.update(f"{name}\n{data_files.sha256(path, follow_links=False)}\n".encode())
    except OSError as error:
        raise ConfigError(f"{key}={place}: {_explained(error)}") from None
    return {f"{key}={place}": hasher.hexdigest()}


def about(named: str, folder: Path) -> dict[str, object]:
    """Returns the metadata of a data set. Raises ConfigError if the data set is not safe to read.

    named: `key=value` of the config key that names the data set, for messages.
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


def _check_about(values: object) -> None:
    if not isinstance(values, dict):
        raise ValueError("not a JSON object")
    if values.get("data_format") not in FORMATS:
        raise ValueError(f"data_format={values.get('data_format')!r} is not one of {', '.join(FORMATS)}")
    count = values.get("total_episodes")
    if type(count) is not int or count < 0:
        raise ValueError(f"total_episodes={count!r} is not a valid count")
    if count == 0:
        raise ValueError("it holds no episodes")
    for key in ("observation_space", "action_space"):  # without these, Minari makes the data set's environment
        if not isinstance(values.get(key), str):
            raise ValueError(f"{key} is missing")


def _files(folder: Path) -> Iterator[Path]:
    """Yields every file of a data set. Raises OSError for a link, a pipe or a device, and for too many files."""
    waiting = [folder / DATA]
    count = 0
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
    """Raises ConfigError if an HDF5 file refers to other files, unpacks to too many bytes, or lacks episodes."""
    import h5py

    try:
        size = path.lstat().st_size
        with h5py.File(path, "r") as file:
            fault = _fault(file, size)
            if fault is None and f"episode_{episodes - 1}" not in file:
                fault = f"lacks some of the {episodes:,} episodes that {ABOUT} declares"
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        raise ConfigError(f"{named}: {HDF5} cannot be read ({_explained(error)})") from None
    if fault:
        raise ConfigError(f"{named}: {HDF5} {fault}")


def _fault(file: Any, size: int) -> str | None:
    """Returns the fault of an open HDF5 file of `size` bytes, or None.

    All groups and arrays must lie in this file, each under one name, and the arrays must not unpack to far more than
    `size`. Groups are visited in a loop, because a deep file would crash the recursive visitors of h5py.
    """
    import h5py
    from h5py import h5d, h5g, h5l, h5o

    most = SMALL + RATIO * size
    waiting = [(file.id, "", 0)]  # groups to look into: (identifier, path, depth)
    seen = {h5o.get_info(file.id).addr}
    bytes_left = most
    while waiting:
        group, path, depth = waiting.pop()
        for name in group:
            full = f"{path}/{name.decode(errors='replace')}"
            if group.links.get_info(name).type != h5l.TYPE_HARD:
                return f"holds a link, {full}, which may lead to another file"
            found = h5o.open(group, name)
            address = h5o.get_info(found).addr
            if address in seen:
                return f"holds {full} under a second name"
            seen.add(address)
            if isinstance(found, h5g.GroupID):
                if depth == DEPTH:
                    return f"has more than {DEPTH} levels at {full[:100]}"
                waiting.append((found, full, depth + 1))
            elif isinstance(found, h5d.DatasetID):
                layout = found.get_create_plist()
                if layout.get_external_count() or layout.get_layout() == h5d.VIRTUAL:
                    return f"keeps {full} in another file"
                space, kind = found.get_space(), found.get_type()
                count = space.get_simple_extent_npoints()
                varies = _varies(kind)
                is_countable = space.get_simple_extent_ndims() <= 1 and count <= size  # in a few seconds
                if not _is_supported(kind) or (varies and not is_countable):
                    return f"holds {full}, an array of a kind that data sets do not have"
                bytes_left -= count * kind.get_size()
                if varies and count:
                    bytes_left = _without_entries(bytes_left, h5py.Dataset(found), size)
                if bytes_left < 0:
                    return f"unpacks to more than {most:,} bytes, the limit for a data set of its size"
    return None


def _varies(kind: "TypeID") -> bool:
    """Returns whether the entries of an HDF5 type have a variable length, as texts and JPEG images have."""
    from h5py import h5t

    return kind.get_class() == h5t.VLEN or (kind.get_class() == h5t.STRING and kind.is_variable_str())


def _is_supported(kind: "TypeID") -> bool:
    """Returns False for HDF5 types with references to other entries, or with variable lengths within other types."""
    from h5py import h5t

    if kind.get_class() == h5t.STRING:
        return True
    if kind.get_class() == h5t.VLEN:
        kind = kind.get_super()
    return not any(map(kind.detect_class, (h5t.VLEN, h5t.STRING, h5t.REFERENCE)))


def _without_entries(bytes_left: int, array: "Dataset", size: int) -> int:
    """Returns `bytes_left` minus the bytes of the entries of variable length in an array of a file of `size` bytes.

    Many entries may refer to the same bytes of the file, so only as many are read at a time as surely fit. Stops when
    the result is negative.
    """
    if array.ndim == 0:
        array = [array[()]]
    start = 0
    while start < len(array) and bytes_left >= 0:
        count = max(1, bytes_left // size)
        for entry in array[start : start + count]:
            bytes_left -= len(entry) * getattr(entry, "itemsize", 1)
        start += count
    return bytes_left


def _explained(error: Exception) -> str:
    """Returns the text of an error in one line, with the file name if the error has one."""
    if not isinstance(error, OSError) or error.strerror is None:
        return " ".join(str(error).split())
    if not error.filename:
        return error.strerror
    return f"{error.filename}: {error.strerror}"
