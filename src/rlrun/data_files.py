"""Opens data files that a config names: tables, data sets, downloaded files. The files may be untrusted."""

import errno
import hashlib
import os
from io import BufferedReader
from pathlib import Path

from rlrun import files, memory
from rlrun.errors import ConfigError

CHUNK = 1 << 20  # bytes


def open_data(path: Path, follow_links: bool = True) -> BufferedReader:
    """Opens a regular file for reading.

    Raises OSError for anything else, because a pipe would block and opening a device can have side effects. With
    `follow_links=False`, a symbolic link raises OSError too; use this for every path that the user did not type.
    """
    try:
        target = path
        if follow_links:
            target = Path(os.path.realpath(path))
        return open(files.open_descriptor(target), "rb")
    except ConfigError:
        raise OSError(errno.EINVAL, "not a regular file", str(path)) from None
    except ValueError as error:  # a NUL byte in the name
        raise OSError(errno.EINVAL, str(error), str(path)) from None


def sha256(path: Path, follow_links: bool = True, most: int | None = None) -> str:
    """Returns the SHA-256 of a regular file, in hex.

    Raises OSError if the file cannot be opened (see `open_data`), is larger than `most` bytes, or goes on after the
    size that it reports, as endless files of /proc do. most: by default the memory of this machine, into which callers
    load the file.
    """
    if most is None:
        most = memory.total()
    found = hashlib.sha256()
    with open_data(path, follow_links) as file:
        left = os.fstat(file.fileno()).st_size
        if left > most:
            raise OSError(errno.EFBIG, f"has {left:,} bytes; the limit is {most:,}", str(path))
        while chunk := file.read(CHUNK):
            left -= len(chunk)
            if left < 0:
                raise OSError(errno.EFBIG, "holds more bytes than its size says", str(path))
            found.update(chunk)
    return found.hexdigest()
