"""Opens the files of a run: regular files only, no symbolic links, no more bytes than allowed.

A run's folder may be untrusted. `check_folder` refuses links, pipes and devices anywhere in it before it is used;
every file is then opened here, which refuses them again, so that a file swapped in between is not followed either.
"""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from rlrun.errors import ConfigError

CONFIG_BYTES = 128 << 10  # config.yaml and overrides.yaml have a few thousand
JSON_BYTES = 4 << 20  # meta.json grows by some 600 bytes with every resume
METRICS_BYTES = 512 << 20
ROW_BYTES = 1 << 20  # one line of metrics.jsonl
ROWS = 2 << 20  # lines of metrics.jsonl
ENTRIES = 1 << 20  # files and folders of a run

KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


def check_folder(folder: Path) -> None:
    """Raises ConfigError unless everything in `folder` is a regular file or a folder of such."""
    waiting, count = [os.fspath(folder)], 0
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
            continue  # removed meanwhile by the process that trains this run
        except OSError as error:
            raise ConfigError(f"{error.filename or folder}: {error.strerror}") from None
        if count > ENTRIES:
            raise ConfigError(f"{folder}: holds more than {ENTRIES:,} files")


def open_file(path: Path, flags: int = os.O_RDONLY, limit: int | None = None) -> int:
    """The descriptor of a regular file. Raises ConfigError for anything else, for more than `limit` bytes, and for a
    file with a second name that is to be written; OSError where it cannot be opened."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG  # to be created, or reported by `open`
    if not stat.S_ISREG(mode):  # before it is opened, which alone may have effects on a device
        raise ConfigError(_refusal(path, mode))
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
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
        raise ConfigError(f"{path}: has a second name (a hard link), under which it would change too; copy the run")
    if limit is not None and found.st_size > limit:
        os.close(descriptor)
        raise ConfigError(f"{path}: has {found.st_size:,} bytes, more than the {limit:,} that it may have")
    return descriptor


def read(path: Path, limit: int) -> bytes:
    """The whole content of a regular file of at most `limit` bytes. Raises ConfigError, OSError."""
    with open(open_file(path, limit=limit), "rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:  # it grew meanwhile
        raise ConfigError(f"{path}: has more than the {limit:,} bytes that it may have")
    return content


def read_lines(path: Path) -> Iterator[bytes]:
    """The lines of a metrics file, with their ends. Raises ConfigError for too many or too long ones, OSError."""
    with open(open_file(path, limit=METRICS_BYTES), "rb") as file:
        for _ in range(ROWS):
            line = file.readline(ROW_BYTES)
            if not line:
                return
            if len(line) == ROW_BYTES:
                raise ConfigError(f"{path}: has a line of more than {ROW_BYTES:,} bytes")
            yield line
    raise ConfigError(f"{path}: has more than {ROWS:,} lines")


def open_to_append(path: Path, from_start: bool = False) -> int:
    """The descriptor of a regular file, made where there is none, to write at its end; emptied with `from_start`."""
    descriptor = open_file(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    if from_start:
        os.ftruncate(descriptor, 0)
    return descriptor


def make_folder(path: Path) -> Path:
    """Make a folder unless it is there. Raises ConfigError for a link or a file of that name, OSError."""
    path.mkdir(exist_ok=True)
    mode = os.lstat(path).st_mode
    if not stat.S_ISDIR(mode):
        raise ConfigError(_refusal(path, mode))
    return path


def _refusal(path: Path, mode: int) -> str:
    kind = KINDS.get(stat.S_IFMT(mode), "no regular file")
    return f"{path}: is {kind}; a run's folder may hold regular files and folders only"
