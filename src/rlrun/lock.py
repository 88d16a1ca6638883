"""The lock of the folder of a run or a sweep. The system releases it even if the process that holds it is killed."""

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from rlrun import files, operating_system
from rlrun.errors import ConfigError

LOCK = ".lock"

# Descriptors of held locks. A forked child closes its copies; otherwise it would keep the lock after its parent ends.
_locks: set[int] = set()


def take(path: Path) -> int:
    """Locks the file .lock of a folder, writes this process's id and host into it, and returns its descriptor.

    Raises ConfigError if another process holds the lock, or if the file cannot be opened or locked.
    """
    file = path / LOCK
    try:
        descriptor = files.open_descriptor(file, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be locked ({error.strerror})") from None
    try:
        try:
            operating_system.lock(descriptor)
        except BlockingIOError:
            # another process may have called `holder`, which locks the file for an instant
            time.sleep(operating_system.RETRY_S)
            operating_system.lock(descriptor)
    except OSError as error:
        holder = _text(descriptor)
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            raise ConfigError(f"{path} is in use by {holder or 'another process'}") from None
        raise ConfigError(f"{path}: cannot be locked ({error.strerror})") from None
    _locks.add(descriptor)
    now = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    with contextlib.suppress(OSError):  # if the disk is full: the lock works without its text
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, f"pid {os.getpid()} on {socket.gethostname()} since {now}\n".encode())
    return descriptor


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """As a context manager, lets one process at a time run the block; others with the same path wait.

    Removes the lock file afterwards. Raises ConfigError if it cannot be locked.
    """
    while True:
        try:
            descriptor = files.open_descriptor(path, os.O_RDWR | os.O_CREAT)
            operating_system.wait_for_lock(descriptor)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be locked ({error.strerror})") from None
        if _is_at(descriptor, path):  # else the previous process has just removed the file that was locked here
            break
        operating_system.unlock_and_close(descriptor)
    try:
        yield
    finally:
        with contextlib.suppress(PermissionError):  # Windows does not delete an open file; the empty file then stays
            path.unlink(missing_ok=True)
        operating_system.unlock_and_close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    return False


def release(descriptor: int) -> None:
    """Releases a lock. Does nothing if the lock is already released."""
    if descriptor in _locks:
        _locks.remove(descriptor)
        with contextlib.suppress(OSError):  # an environment may have closed the file
            operating_system.unlock_and_close(descriptor)


def holder(path: Path) -> str | None:
    """Returns which process holds the lock of a folder, as text, or None if the lock is free or cannot be read."""
    file = path / LOCK
    try:
        descriptor = files.open_descriptor(file)
    except (OSError, ConfigError):
        return None
    try:
        if operating_system.is_locked(descriptor):
            return _text(descriptor) or "another process"
        return None
    finally:
        os.close(descriptor)


def _text(descriptor: int) -> str:
    """Returns what the holder of a lock wrote into the lock file."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    return os.read(descriptor, 200).decode(errors="replace").strip()


def _forget_locks() -> None:
    while _locks:
        os.close(_locks.pop())


operating_system.after_fork(_forget_locks)
