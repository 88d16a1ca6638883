"""Stores images, videos and histograms of a run in RUN/media. Loggers receive the files."""

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from rlrun import files
from rlrun.media import Histogram, Image, Video
from rlrun.snapshot.atomic import replace_file

if TYPE_CHECKING:
    import PIL.Image

FOLDER = "media"
LARGEST = 64 << 20  # maximum size of one file in bytes


KINDS: dict[str, type] = {kind.suffix: kind for kind in (Image, Video, Histogram)}


@dataclass(frozen=True)
class Medium:
    """A file in RUN/media: RUN/media/000000001000-<name>.png."""

    step: int
    name: str
    path: Path

    @property
    def kind(self) -> type:
        """The class of the value: Image, Video or Histogram."""
        return KINDS[self.path.suffix]

    def content(self) -> bytes:
        """Returns the bytes of the file. Raises the errors of `files.read`."""
        return files.read(self.path, LARGEST)

    def picture(self) -> "PIL.Image.Image":
        """Returns an image, or a video at its first frame. Raises OSError for a file of another kind.

        Pillow knows many other kinds, some of which run programs.
        """
        import PIL.Image

        return PIL.Image.open(io.BytesIO(self.content()), formats=["PNG", "GIF"])

    def size(self) -> tuple[int, int]:
        """Returns width and height of an image or a video."""
        width, height = self.picture().size
        return width, height

    def histogram(self) -> tuple[list[float], list[float]]:
        """Returns counts and edges of a histogram."""
        found = json.loads(self.content())
        return found["counts"], found["edges"]


def store(run: Path, step: int, name: str, value: Image | Video | Histogram) -> Medium:
    """Writes a value to RUN/media. Raises ValueError for another type, and any exception for damaged content."""
    if not isinstance(value, Image | Video | Histogram):
        raise ValueError(f"{type(value).__name__} is not an Image, a Video or a Histogram")
    path = files.make_folder(run / FOLDER) / f"{step:012}-{quote(name, safe='')}{value.suffix}"
    replace_file(path, [value.content()])
    return Medium(step, name, path)


def kept(run: Path, step: int) -> list[Medium]:
    """Returns the files up to a step, from which the run resumes, in their order. Deletes later files."""
    media = []
    for medium in _all(run):
        if medium.step <= step:
            media.append(medium)
        else:
            medium.path.unlink()
    return media


def latest_images(run: Path) -> list[Medium]:
    """Returns the latest image of each name, by name. The files may have any content."""
    latest = {medium.name: medium for medium in _all(run) if medium.kind is Image}
    return [latest[name] for name in sorted(latest)]


def _all(run: Path) -> Iterator[Medium]:
    for path in sorted((run / FOLDER).glob("*-*")):
        step, _, name = path.stem.partition("-")
        if step.isdecimal() and path.suffix in KINDS:
            yield Medium(int(step), unquote(name), path)
