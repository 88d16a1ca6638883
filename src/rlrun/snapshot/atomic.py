"""Writes files and folders that are complete or absent, even if the process is killed.

Each is written under a temporary name, synced to the disk, renamed, and then its parent folder is synced. Names that
start with `.tmp-`, `.old-` or `.trash-` are leftovers once the process that made them has ended. The guarantee depends
on `sync` and `rename`: the fault tests fail if either does not do its work.
"""

import contextlib
import errno
import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from rlrun import files, operating_system
from rlrun.errors import NO_SPACE

TEMPORARY, REPLACED, TRASH = ".tmp-", ".old-", ".trash-"
RESERVE = 16 << 20  # bytes that must stay free on the disk for logs and small files


class Written(NamedTuple):
    """Size and hash of a file on disk."""

    size: int  # bytes
    sha256: str  # hex


def write_new(path: Path, chunks: Iterable[Any]) -> Written:
    """Writes bytes to a new file and syncs it to the disk. Raises FileExistsError if the file exists.

    The size and hash that it returns are computed while writing, without copying the bytes.
    """
    hasher, size = hashlib.sha256(), 0
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | operating_system.OPEN_FLAGS, 0o644)
    try:
        for chunk in chunks:
            left = memoryview(chunk)
            size += len(left)
            hasher.update(left)
            while len(left):  # one call writes at most 2 GiB
                left = left[os.write(descriptor, left) :]
        sync(descriptor)
    finally:
        os.close(descriptor)
    return Written(size, hasher.hexdigest())


def replace_text(path: Path, text: str) -> None:
    """Replaces the content of `path` atomically: readers see the whole old or the whole new text."""
    replace_file(path, [text.encode()])


def new_file(path: Path) -> Path:
    """Creates an empty file that `rename` can put in place of `path`, and returns its temporary path."""
    temporary = path.with_name(TEMPORARY + path.name)
    temporary.unlink(missing_ok=True)
    write_new(temporary, ())
    return temporary


def replace_file(path: Path, chunks: Iterable[Any]) -> None:
    """Replaces the content of `path` by bytes, atomically as `replace_text` does."""
    temporary = path.with_name(TEMPORARY + path.name)
    temporary.unlink(missing_ok=True)
    write_new(temporary, chunks)
    try:
        rename(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def replace_folder(source: Path, target: Path) -> None:
    """Renames a finished folder to its final name, in place of an older folder.

    Replacing takes two renames. If the process is killed between them, `remove_leftovers` restores the old folder.
    """
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
    """Deletes a folder if it exists. It is renamed first, so that a partly deleted folder never has its real name."""
    if path.exists():
        trash = path.with_name(f"{TRASH}{path.name}-{os.urandom(4).hex()}")
        rename(path, trash)
        shutil.rmtree(trash, ignore_errors=True)  # `remove_leftovers` deletes what remains at the next start


def link(source: Path, target: Path) -> None:
    """Creates a hard link to a file that never changes, or a copy if the file system cannot make the link."""
    try:
        os.link(source, target)
    except OSError:
        with open(files.open_descriptor(source), "rb") as file:
            write_new(target, iter(lambda: file.read(1 << 20), b""))


def rename(source: Path, target: Path) -> None:
    """Renames atomically, and replaces a file that has the new name."""
    os.replace(source, target)


def sync(descriptor: int) -> None:
    """Waits until the content of an open file or folder is on disk."""
    os.fsync(descriptor)


def sync_folder(path: Path) -> None:
    """Syncs a folder, so that names created in it or renamed into it survive a loss of power."""
    operating_system.sync_folder(path, sync)


def check_space(folder: Path, size: int) -> None:
    """Raises OSError if less than RESERVE would stay free after writing `size` bytes. Called before each write."""
    free = shutil.disk_usage(folder).free
    if size + RESERVE > free:
        shortage = f"{size / 2**20:.1f} MiB are needed and {RESERVE >> 20} kept for logs, {free / 2**20:.1f} are free"
        raise OSError(errno.ENOSPC, shortage, str(folder))


def is_shortage(line: str) -> bool:
    """Returns whether an error that a run printed says that its disk is full."""
    return f"MiB are needed and {RESERVE >> 20} kept" in line or NO_SPACE in line


def remove_leftovers(folder: Path) -> None:
    """Removes the leftovers of a killed process from `folder`. Only the one process that writes there may call this.

    An `.old-` folder whose replacement was not completed gets its name back.
    """
    for path in list(folder.glob(f"{REPLACED}*")):
        name = folder / path.name.removeprefix(REPLACED)
        if not name.exists():
            rename(path, name)
    for path in leftovers(folder):
        with contextlib.suppress(FileNotFoundError):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def leftovers(folder: Path) -> list[Path]:
    """Returns what `remove_leftovers` removes from `folder`. A process that writes there may still need it."""
    found = []
    for path in sorted(folder.glob(".*")):
        is_replaced = path.name.startswith(REPLACED) and (folder / path.name.removeprefix(REPLACED)).exists()
        if is_replaced or path.name.startswith((TEMPORARY, TRASH)):
            found.append(path)
    return found
