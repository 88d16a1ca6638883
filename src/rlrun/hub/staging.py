"""Creates folders that are either complete or absent."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from rlrun.errors import RlrunError
from rlrun.snapshot import atomic


@contextlib.contextmanager
def staged(target: Path) -> Iterator[Path]:
    """As a context manager, yields a new folder that becomes `target` at the end, or is removed after an exception."""
    parent = target.parent
    made = [folder for folder in (parent, *parent.parents) if not folder.exists()]  # parents that `mkdir` creates
    folder = parent / f"{atomic.TEMPORARY}{target.name}-{os.urandom(4).hex()}"
    with writing(target):
        try:
            folder.mkdir(parents=True)
            yield folder
            atomic.rename(folder, target)
            atomic.sync_folder(parent)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(OSError):  # not empty, because of another process
                for one in made:
                    one.rmdir()
            raise


@contextlib.contextmanager
def writing(place: Path) -> Iterator[None]:
    """As a context manager, turns an OSError into an error of one line."""
    try:
        yield
    except OSError as error:
        raise RlrunError(f"{error.filename or place}: cannot be written ({error.strerror})") from None
