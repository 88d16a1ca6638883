"""Opens files of data that a config names: tables, data sets, downloads. They may come from anyone."""

import errno
import hashlib
import os
import stat
from io import BufferedReader
from pathlib import Path


def open_data(path: Path, follow_links: bool = True) -> BufferedReader:
    """A regular file, opened to be read.

    Raises OSError for anything else: a pipe would block, a device may have effects. With `follow_links=False` a
    symbolic link is refused too: use it for every path that the user did not type.
    """
    links = 0 if follow_links else os.O_NOFOLLOW
    try:
        _check_regular(os.stat(path, follow_symlinks=follow_links), path)  # opening a device may have effects
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | links)
    except ValueError as error:  # a NUL byte in the name
        raise OSError(errno.EINVAL, str(error), str(path)) from None
    try:
        _check_regular(os.fstat(descriptor), path)  # another file may have taken its place since
    except OSError:
        os.close(descriptor)
        raise
    return open(descriptor, "rb")


def sha256(path: Path, follow_links: bool = True) -> str:
    """The SHA-256 of a regular file, in hex. Raises OSError, as `open_data` does."""
    with open_data(path, follow_links) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_regular(status: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
