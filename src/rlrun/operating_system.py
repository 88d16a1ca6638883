"""What differs between operating systems: file locks, signals, memory, load, and how files are opened and synced.

No other module uses a name that only some systems have. rlrun is tested on Linux only; see docs/runs.md.
"""

import contextlib
import errno
import math
import os
import signal
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def _module(name: str) -> Any:
    """Returns a module of the standard library, or None if this system does not have it."""
    try:
        return import_module(name)
    except ImportError:
        return None


fcntl = _module("fcntl")  # not on Windows
msvcrt = _module("msvcrt")  # only on Windows
resource = _module("resource")  # not on Windows

RETRY_S = 0.05  # time between two attempts to take a lock
LOCKED_BYTE = 1 << 30  # position of the byte that msvcrt locks; the text before it stays readable

# flags for opening a file of a run: as bytes, no links, no waiting for a pipe, not inherited by child processes
OPEN_FLAGS = 0
for _flag in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY", "O_NOINHERIT"):
    OPEN_FLAGS |= getattr(os, _flag, 0)


def cache_folder() -> Path:
    """Returns the folder in which rlrun keeps files between runs, $XDG_CACHE_HOME/rlrun or ~/.cache/rlrun."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rlrun"


def lock(descriptor: int) -> None:
    """Locks an open file, or raises BlockingIOError if another process holds its lock.

    The system releases the lock when the process ends, however it ends.
    """
    if fcntl:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    os.lseek(descriptor, LOCKED_BYTE, os.SEEK_SET)
    try:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    except OSError as error:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from error


def wait_for_lock(descriptor: int) -> None:
    """Locks an open file. Waits until no other process holds its lock."""
    if fcntl:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return
    while True:
        with contextlib.suppress(BlockingIOError):
            lock(descriptor)
            return
        time.sleep(RETRY_S)


def is_locked(descriptor: int) -> bool:
    """Returns whether another process holds the lock of an open file. Locks the file for an instant."""
    try:
        if fcntl:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        else:
            lock(descriptor)
            msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)
    except OSError:
        return True
    return False


def unlock_and_close(descriptor: int) -> None:
    """Releases the lock of an open file and closes the file."""
    if not fcntl:
        os.lseek(descriptor, LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)
    os.close(descriptor)


def after_fork(function: Callable[[], None]) -> None:
    """Calls a function in every child process that `os.fork` creates, on systems that have it."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


def signals_of(*names: str) -> tuple[signal.Signals, ...]:
    """Returns the signals of these names that the system has."""
    return tuple(getattr(signal, name) for name in names if hasattr(signal, name))


def kill_when_closed(descriptor: int) -> None:
    """Makes Linux kill this process when the other end of a pipe is closed. Does nothing on other systems.

    The process ends even if it is stopped or in an endless loop.
    """
    if fcntl and hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | fcntl.FASYNC)


def total_memory() -> int:
    """Returns the memory of this machine in bytes, or `sys.maxsize` if the system does not report it."""
    if not hasattr(os, "sysconf"):
        return sys.maxsize
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def limit_memory(count: int) -> None:
    """Limits the private memory of this process and its children to `count` bytes each.

    Does nothing if the system has no module `resource`.
    """
    if not resource:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        count = min(count, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (count, count))


def resident_mb() -> float:
    """Returns the resident memory of this process in MiB, or its peak, or NaN, whichever the system reports."""
    import mmap

    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * mmap.PAGESIZE / 2**20
    except OSError:
        if not resource:
            return math.nan
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if sys.platform == "darwin":
            return peak / 2**20  # bytes
        return peak / 2**10  # KiB


def cpu_information() -> str:
    """Returns the text of /proc/cpuinfo, or "" if the system has no such file."""
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return ""


def usable_cpus() -> int:
    """Returns the number of CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def load_average(minutes: int) -> float:
    """Returns the mean number of running processes over 1, 5 or 15 minutes, or 0 if the system does not report it."""
    if not hasattr(os, "getloadavg"):
        return 0.0
    return os.getloadavg()[(1, 5, 15).index(minutes)]


def has_display() -> bool:
    """Returns whether a window can be opened: always on macOS and Windows, elsewhere if X11 or Wayland is running."""
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def open_standard_streams() -> None:
    """Opens the null device in place of standard streams that are closed, as after `rlrun ... >&-`.

    Otherwise they would be None, and the next files that are opened would get their numbers, to which libraries write.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is that of the closed stream
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, mode))


def sync_folder(path: Path, sync: Callable[[int], None]) -> None:
    """Calls `sync` with the descriptor of a folder, unless the system cannot open folders, as Windows cannot."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)
