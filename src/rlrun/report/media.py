"""Pictures that runs have stored in RUN/media, such as those of the callback `latents`, for the page."""

import base64
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rlrun import files
from rlrun.errors import ConfigError
from rlrun.report.runs import StoredRun
from rlrun.telemetry.media import latest_images

BYTES = 1 << 20  # most bytes of a picture
PAGE_BYTES = 8 << 20  # most bytes of all pictures of a page
SIDE = 4096  # most pixels a side
HEAD = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"  # how a PNG file begins; width and height follow
WIDE = 320  # pixels on the page that smaller pictures are enlarged to, by a whole number


@dataclass(frozen=True)
class StoredPicture:
    """The latest picture of one name, as the page embeds it."""

    run: str
    name: str
    step: int
    url: str
    width: int  # on the page
    height: int


def stored_pictures(runs: Sequence[StoredRun]) -> tuple[list[StoredPicture], int]:
    """Returns the latest picture of each name in each run, and how many others are no PNG or exceed a limit."""
    found: list[StoredPicture] = []
    left_out = 0
    room = PAGE_BYTES
    for name, step, run, content in _files(runs):
        size = dimensions(content)
        if size is None or len(content) > room:
            left_out += 1
            continue
        room -= len(content)
        width, height = size
        factor = max(1, WIDE // width)
        url = f"data:image/png;base64,{base64.b64encode(content).decode()}"
        found.append(StoredPicture(run, name, step, url, factor * width, factor * height))
    return found, left_out


def _files(runs: Sequence[StoredRun]) -> Iterator[tuple[str, int, str, bytes]]:
    """Yields name, step, run and content of each picture; b"" for a file that cannot be read or is too large."""
    for run in runs:
        for medium in latest_images(run.path):
            try:
                content = files.read(medium.path, BYTES)
            except (OSError, ConfigError):
                content = b""
            yield medium.name, medium.step, str(run.path), content


def dimensions(content: bytes) -> tuple[int, int] | None:
    """Returns width and height of a PNG file, or None for other files and for sides of 0 or of more than SIDE."""
    if not content.startswith(HEAD) or len(content) < len(HEAD) + 8:
        return None
    width, height = struct.unpack_from(">II", content, len(HEAD))
    if not (0 < width <= SIDE and 0 < height <= SIDE):
        return None
    return width, height
