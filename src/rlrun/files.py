"""Opens the files of runs and sweeps. Refuses symbolic links, anything but regular files, and files above a size limit.

The folder of a run or a sweep may be untrusted. Before it is used, `check_folder` refuses links, pipes and devices
anywhere in it. `open_descriptor` repeats the check for each file, which may have been replaced in the meantime.
"""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from rlrun.errors import ConfigError
from rlrun.operating_system import OPEN_FLAGS

CONFIG_BYTES = 128 << 10  # config.yaml and overrides.yaml have a few thousand bytes
JSON_BYTES = 4 << 20  # meta.json grows by about 600 bytes with every resume
METRICS_BYTES = 512 << 20
ROW_BYTES = 1 << 20  # most bytes of a line in a file of JSON lines, including the line end
ROWS = 2 << 20  # most lines of such a file
ENTRIES = 1 << 20  # most files and folders in the folder of a run or a sweep

KINDS = {  # file types that are refused, by their bits of st_mode
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def check_folder(folder: Path) -> None:
    """Raises ConfigError if anything at or below `folder` is neither a regular file nor a folder, cannot be listed, or
    makes the number of files and folders exceed `ENTRIES`. A folder that does not exist passes."""
    waiting = [os.fspath(folder)]
    count = 0
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    count += 1
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif not entry.is_file(follow_symlinks=False):
                        raise ConfigError(_refusal(Path(entry.path), os.lstat(entry.path).st_mode))
        except FileNotFoundError:
            continue  # the process that trains this run has just removed it
        except OSError as error:
            raise ConfigError(f"{error.filename or folder}: {error.strerror}") from None
        if count > ENTRIES:
            raise ConfigError(f"{folder}: holds more than {ENTRIES:,} files and folders")


def open_descriptor(path: Path, flags: int = os.O_RDONLY, limit: int | None = None) -> int:
    """Opens a regular file and returns its descriptor.

    flags: those of `os.open`; O_CREAT creates a file that does not exist. Raises ConfigError if the path is not a
    regular file, if the file has more than `limit` bytes, or if it is opened for writing and has a second hard link.
    Raises OSError if opening fails.
    """
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG  # `os.open` creates the file or raises the error
    if not stat.S_ISREG(mode):  # checked before opening, because opening a device can have side effects
        raise ConfigError(_refusal(path, mode))
    try:
        descriptor = os.open(path, flags | OPEN_FLAGS, 0o644)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ConfigError(_refusal(path, stat.S_IFLNK)) from None
        raise
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise ConfigError(_refusal(path, found.st_mode))
    if flags & (os.O_WRONLY | os.O_RDWR) and found.st_nlink > 1:
        os.close(descriptor)
        raise ConfigError(f"{path}: has a second name (a hard link); writing would change both, so copy the run first")
    if limit is not None and found.st_size > limit:
        os.close(descriptor)
        raise ConfigError(f"{path}: has {found.st_size:,} bytes, but the limit is {limit:,}")
    return descriptor


def read(path: Path, limit: int) -> bytes:
    """Returns the content of a regular file of at most `limit` bytes. Raises the errors of `open_descriptor`."""
    with open(open_descriptor(path, limit=limit), "rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:  # the file grew after it was opened
        raise ConfigError(f"{path}: has more than {limit:,} bytes, the limit")
    return content


def read_lines(path: Path) -> Iterator[bytes]:
    """Yields the lines of a file of JSON lines, including line ends.

    Raises ConfigError for more than `ROWS` lines or a line of more than `ROW_BYTES` bytes, and the errors of
    `open_descriptor`.
    """
    count = 0
    with open(open_descriptor(path, limit=METRICS_BYTES), "rb") as file:
        while line := file.readline(ROW_BYTES + 1):
            count += 1
            if count > ROWS:
                raise ConfigError(f"{path}: has more than {ROWS:,} lines")
            if len(line) > ROW_BYTES:
                raise too_long(path)
            yield line


def too_long(path: Path) -> ConfigError:
    """Returns the error of a file with a line of more than `ROW_BYTES` bytes."""
    return ConfigError(f"{path}: has a line of more than {ROW_BYTES:,} bytes")


def open_to_append(path: Path, from_start: bool = False) -> int:
    """Opens a regular file for appending and returns its descriptor. Creates the file if it does not exist.

    from_start: empty the file first. Raises the errors of `open_descriptor`.
    """
    descriptor = open_descriptor(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    if from_start:
        os.ftruncate(descriptor, 0)
    return descriptor


def make_folder(path: Path) -> Path:
    """Creates a folder unless it exists. Raises ConfigError if the path is a symbolic link, else OSError on failure."""
    try:
        path.mkdir(exist_ok=True)
    except FileExistsError:  # raised for a file, and for a link that does not lead to a folder
        if not path.is_symlink():
            raise
    mode = os.lstat(path).st_mode
    if not stat.S_ISDIR(mode):
        raise ConfigError(_refusal(path, mode))
    return path


def _refusal(path: Path, mode: int) -> str:
    if stat.S_ISDIR(mode):
        return f"{path}: is a folder, but must be a file"
    kind = KINDS.get(stat.S_IFMT(mode), "of an unknown kind")
    return f"{path}: is {kind}; the folder of a run or a sweep may hold regular files and folders only"
