"""Files and folders that are whole or absent, whatever kills the process: other name, fsync, rename, fsync the folder.

Names that start with `.tmp-`, `.old-` or `.trash-` are leftovers once the process that made them is gone.
"""

import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

TEMPORARY, REPLACED, TRASH = ".tmp-", ".old-", ".trash-"


class Written(NamedTuple):
    size: int  # bytes
    sha256: str  # hex


def write_new(path: Path, chunks: Iterable[Any]) -> Written:
    """Write buffers to a file that must not exist yet, and wait for the disk. Hashes what it writes, without copies."""
    hasher, size = hashlib.sha256(), 0
    with open(path, "xb") as file:
        for chunk in chunks:
            size += file.write(chunk)
            hasher.update(chunk)
        file.flush()
        os.fsync(file.fileno())
    return Written(size, hasher.hexdigest())


def replace_text(path: Path, text: str) -> None:
    """Give `path` new content at once: readers see the old text or the new one, never a part."""
    temporary = path.with_name(TEMPORARY + path.name)
    temporary.unlink(missing_ok=True)
    write_new(temporary, [text.encode()])
    os.replace(temporary, path)
    sync_folder(path.parent)


def replace_folder(source: Path, target: Path) -> None:
    """Give a finished folder its name. `sweep` repairs a kill between the two renames that replacing takes."""
    old = target.with_name(REPLACED + target.name)
    if target.exists():
        remove(old)
        os.rename(target, old)
    try:
        os.rename(source, target)
    except OSError:
        if old.exists():
            os.rename(old, target)
        raise
    sync_folder(target.parent)
    remove(old)


def remove(path: Path) -> None:
    """Delete a folder, if there is one. Nobody ever sees a part of it under its own name."""
    if path.exists():
        trash = path.with_name(f"{TRASH}{path.name}-{os.urandom(4).hex()}")
        os.rename(path, trash)
        shutil.rmtree(trash, ignore_errors=True)  # what stays is swept at the next start


def link(source: Path, target: Path) -> None:
    """A second name for a file that never changes; a copy where the file system has no hard links (left)."""
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        with open(source, "rb") as file:
            write_new(target, iter(lambda: file.read(1 << 20), b""))


def sync_folder(path: Path) -> None:
    """Make names created in or renamed into `path` survive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sweep(folder: Path) -> None:
    """Clear away what a killed process left in `folder`; only for the one process that may write there."""
    for path in list(folder.iterdir()):
        if path.name.startswith(REPLACED):
            name = folder / path.name.removeprefix(REPLACED)
            if not name.exists():
                os.rename(path, name)
    for path in list(folder.iterdir()):
        if path.name.startswith((TEMPORARY, REPLACED, TRASH)):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
