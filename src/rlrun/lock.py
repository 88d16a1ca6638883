"""The lock of a run's folder, which the kernel gives back however its holder ends."""

import contextlib
import fcntl
import os
import socket
import time
from pathlib import Path

from rlrun.errors import ConfigError

LOCK = ".lock"

# Descriptors. A forked child gives its copies up, else it would hold the lock after its parent's death.
_locks: set[int] = set()


def take(path: Path) -> int:
    """Hold RUN/.lock with flock, which the kernel frees however the process ends. Its text says who holds it."""
    try:
        descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
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


def release(descriptor: int) -> None:
    """Give it back; twice is once."""
    if descriptor in _locks:
        _locks.remove(descriptor)
        os.close(descriptor)


def holder(path: Path) -> str | None:
    """Who holds a run's lock, as text; None where nobody does. Takes nothing away from a process that wants it."""
    try:
        descriptor = os.open(path / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
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
