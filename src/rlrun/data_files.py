"""Opens data files that a config names: tables, data sets, downloads. They may be untrusted."""

import errno
import hashlib
import os
from io import BufferedReader
from pathlib import Path

from rlrun import files
from rlrun.errors import ConfigError


def open_data(path: Path, follow_links: bool = True) -> BufferedReader:
    """A regular file, opened to be read.

    Raises OSError for anything else: a pipe would block, a device may have effects. With `follow_links=False` a
    symbolic link is refused too: use it for every path that the user did not type.
    """
    try:
        target = Path(os.path.realpath(path)) if follow_links else path
        return open(files.open_file(target), "rb")
    except ConfigError:
        raise OSError(errno.EINVAL, "not a regular file", str(path)) from None
    except ValueError as error:  # a NUL byte in the name
        raise OSError(errno.EINVAL, str(error), str(path)) from None


def sha256(path: Path, follow_links: bool = True) -> str:
    """The SHA-256 of a regular file, in hex. Raises OSError, as `open_data` does."""
    with open_data(path, follow_links) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
