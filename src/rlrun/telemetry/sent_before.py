"""Remembers, in the user's own cache, with which settings and to which remote runs the loggers of a run have sent data.

The folder of a run may be untrusted. An address or an id in it is used only if the user types it, or if a run in the
same folder has used it before on this machine.
"""

import contextlib
import hashlib
import json
from pathlib import Path

from rlrun.operating_system import cache_folder


def remember(run: Path, logger: str, used: object) -> None:
    """Stores that a logger of the run in this folder uses a value. used: settings, or the id of a remote run."""
    path = _path(run, logger, used)
    with contextlib.suppress(OSError):  # if the cache cannot be written, a resume needs the value again
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def is_remembered(run: Path, logger: str, used: object) -> bool:
    """Returns whether a logger of the run in this folder has used this value before, on this machine."""
    return _path(run, logger, used).exists()


def _path(run: Path, logger: str, used: object) -> Path:
    text = json.dumps([str(run.resolve()), logger, used], sort_keys=True)
    return cache_folder() / "loggers" / hashlib.sha256(text.encode()).hexdigest()
