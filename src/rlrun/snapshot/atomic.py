"""Files and folders that are complete or absent, whatever ends the process: temporary name, fsync, rename, fsync of the
folder.

Names that start with `.tmp-`, `.old-` or `.trash-` are leftovers once the process that made them is gone. `sync` and
`rename` are the protections themselves, and the fault tests fail where one does less.
"""

import contextlib
import errno
import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from rlrun import files

TEMPORARY, REPLACED, TRASH = ".tmp-", ".old-", ".trash-"
RESERVE = 16 << 20  # bytes of the disk left to logs and small files


class Written(NamedTuple):
    """A file on disk."""

    size: int  # bytes
    sha256: str  # hex


def write_new(path: Path, chunks: Iterable[Any]) -> Written:
    """Write bytes to a file that must not exist yet, and wait for the disk. Hashes what it writes, without copies."""
    hasher, size = hashlib.sha256(), 0
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        for chunk in chunks:
            left = memoryview(chunk)
            size += len(left)
            hasher.update(left)
            while len(left):  # a call writes 2 GiB at most
                left = left[os.write(descriptor, left) :]
        sync(descriptor)
    finally:
        os.close(descriptor)
    return Written(size, hasher.hexdigest())


def replace_text(path: Path, text: str) -> None:
    """Give `path` new content at once: readers see the old text or the new one, never a part."""
    replace_file(path, [text.encode()])


def replace_file(path: Path, chunks: Iterable[Any]) -> None:
    """Give `path` new bytes at once."""
    temporary = path.with_name(TEMPORARY + path.name)
    temporary.unlink(missing_ok=True)
    write_new(temporary, chunks)
    rename(temporary, path)
    sync_folder(path.parent)


def replace_folder(source: Path, target: Path) -> None:
    """Give a finished folder its name. `sweep` repairs a kill between the two renames that replacing takes."""
    old = target.with_name(REPLACED + target.name)
    if target.exists():
        remove(old)
        rename(target, old)
    try:
        rename(source, target)
    except OSError:
        if old.exists():
            rename(old, target)
        raise
    sync_folder(target.parent)
    remove(old)


def remove(path: Path) -> None:
    """Delete a folder, if there is one. It is renamed first, so that no part of it is ever seen under its own name."""
    if path.exists():
        trash = path.with_name(f"{TRASH}{path.name}-{os.urandom(4).hex()}")
        rename(path, trash)
        shutil.rmtree(trash, ignore_errors=True)  # what stays is swept at the next start


def link(source: Path, target: Path) -> None:
    """A second name for a file that never changes; a copy where the file system has no hard links (left)."""
    try:
        os.link(source, target)
    except OSError:
        with open(files.open_file(source), "rb") as file:
            write_new(target, iter(lambda: file.read(1 << 20), b""))


def rename(source: Path, target: Path) -> None:
    """In one step, in place of a file of that name."""
    os.rename(source, target)


def sync(descriptor: int) -> None:
    """Return once the disk has it."""
    os.fsync(descriptor)


def sync_folder(path: Path) -> None:
    """Make names created in or renamed into `path` survive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def check_space(folder: Path, size: int) -> None:
    """Raises OSError where `size` more bytes would leave less than the reserve. Called before each write."""
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    if size + RESERVE > free:
        shortage = f"{size / 2**20:.1f} MiB are due and {RESERVE >> 20} kept for logs, {free / 2**20:.1f} are free"
        raise OSError(errno.ENOSPC, shortage, str(folder))


def sweep(folder: Path) -> None:
    """Remove the leftovers of a killed process from `folder`; only for the one process that may write there."""
    for path in list(folder.iterdir()):
        if path.name.startswith(REPLACED):
            name = folder / path.name.removeprefix(REPLACED)
            if not name.exists():
                rename(path, name)
    for path in list(folder.iterdir()):
        if path.name.startswith((TEMPORARY, REPLACED, TRASH)):
            with contextlib.suppress(FileNotFoundError):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
