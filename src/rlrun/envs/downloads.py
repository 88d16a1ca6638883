"""Published files, fetched when that is asked for, kept, and taken only if they are what was published."""

import hashlib
import os
import shutil
import urllib.request
from pathlib import Path

SECONDS = 60  # without a byte


def fetched(url: str, sha256: str) -> Path:
    """The file behind url, from the folder of earlier ones where it is there.

    Raises ValueError where it cannot be had, or is not the file of that checksum; what is kept then stays as it was.
    """
    path = folder() / f"{sha256[:8]}-{url.rpartition('/')[2]}"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.{os.getpid()}")
        try:
            with urllib.request.urlopen(url, timeout=SECONDS) as answer, part.open("wb") as file:
                shutil.copyfileobj(answer, file)
            verify(part, sha256, url)
            part.replace(path)
        except OSError as error:
            raise ValueError(f"{url}: cannot be fetched ({getattr(error, 'reason', error)}); give its path") from error
        finally:
            part.unlink(missing_ok=True)
    verify(path, sha256, str(path))
    return path


def folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rlrun"


def verify(path: Path, sha256: str, name: str) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise ValueError(f"{name}: is not what was published (its SHA-256 is {found}, not {sha256})")
