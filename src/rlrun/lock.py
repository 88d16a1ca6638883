"""The lock of a run's folder, which the kernel releases however its holder ends."""

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from rlrun import files
from rlrun.errors import ConfigError

LOCK = ".lock"

# Descriptors. A forked child closes its copies, else it would hold the lock after the death of its parent.
_locks: set[int] = set()


def take(path: Path) -> int:
    """Take RUN/.lock with flock. Its text names the holding process. Raises ConfigError where it is held already."""
    try:
        descriptor = files.open_file(path / LOCK, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be locked ({error.strerror})") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.05)  # `holder` may be looking just now
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            raise ConfigError(f"{path} is in use by {holder or 'another process'}") from None
        raise ConfigError(f"{path}: cannot be locked ({error.strerror})") from None
    _locks.add(descriptor)
    now = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    with contextlib.suppress(OSError):  # a full disk: the lock holds, its text only informs
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"pid {os.getpid()} on {socket.gethostname()} since {now}\n".encode(), 0)
    return descriptor


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """As a context manager, excludes other processes with the same path, which wait. Removes the file afterwards.

    Raises ConfigError where it cannot be locked.
    """
    while True:
        try:
            descriptor = files.open_file(path, os.O_RDWR | os.O_CREAT)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be locked ({error.strerror})") from None
        if _is_at(descriptor, path):  # else the process before us has just removed it
            break
        os.close(descriptor)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    return False


def release(descriptor: int) -> None:
    """Release a lock. Does nothing the second time."""
    if descriptor in _locks:
        _locks.remove(descriptor)
        os.close(descriptor)


def holder(path: Path) -> str | None:
    """The process that holds a run's lock, as text; None where it is free. Does not take the lock itself."""
    try:
        descriptor = files.open_file(path / LOCK)
    except (OSError, ConfigError):
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "another process"
    else:
        return None
    finally:
        os.close(descriptor)


def _forget_locks() -> None:
    while _locks:
        os.close(_locks.pop())


os.register_at_fork(after_in_child=_forget_locks)
