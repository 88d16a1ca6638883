"""New folders that are complete or absent."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from rlrun.errors import RlrunError
from rlrun.snapshot import atomic


@contextlib.contextmanager
def staged(target: Path) -> Iterator[Path]:
    """A folder that becomes `target` at the end of the context, or is removed if the context raises."""
    parent = target.parent
    made = [folder for folder in (parent, *parent.parents) if not folder.exists()]
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
    """Turns what the file system refuses into one line."""
    try:
        yield
    except OSError as error:
        raise RlrunError(f"{error.filename or place}: cannot be written ({error.strerror})") from None
