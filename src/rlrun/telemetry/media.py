"""Stores images, videos and histograms of a run in RUN/media. Loggers receive the files."""

import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote, unquote

from rlrun import files
from rlrun.images import fitted, rgb
from rlrun.snapshot.atomic import replace_file

if TYPE_CHECKING:
    import numpy as np
    import PIL.Image
    from numpy.typing import NDArray

FOLDER = "media"
LARGEST = 64 << 20  # maximum size of one file in bytes
BINS = 64


@dataclass(frozen=True)
class Image:
    """An image as PNG."""

    pixels: "NDArray[np.uint8]"  # [height, width, 3]; also grey [height, width], or with alpha, which is left out
    suffix: ClassVar[str] = ".png"

    @classmethod
    def of_figure(cls, figure: Any) -> "Image":
        """Returns the image of a matplotlib figure."""
        import numpy as np

        figure.canvas.draw()
        return cls(np.asarray(figure.canvas.buffer_rgba()))

    def content(self) -> bytes:
        """Returns the bytes of the file."""
        return _encoded([self.pixels], "PNG")


@dataclass(frozen=True)
class Video:
    """A video as animated GIF, which every browser shows."""

    frames: "Sequence[NDArray[np.uint8]]"  # [time, height, width, 3]; each also as in Image
    fps: float
    suffix: ClassVar[str] = ".gif"

    def content(self) -> bytes:
        """Returns the bytes of the file. Raises ValueError for frames that are not images, or `fps` of 0 or less."""
        if not self.fps > 0:
            raise ValueError(f"fps={self.fps}: must be above 0")
        return _encoded([*self.frames], "GIF", save_all=True, duration=1000 / self.fps, loop=0)


@dataclass(frozen=True)
class Histogram:
    """Counts of values in bins of equal width."""

    values: "NDArray[Any]"  # of any shape; values that are not finite are left out
    suffix: ClassVar[str] = ".json"

    def content(self) -> bytes:
        """Returns the bytes of the file."""
        import numpy as np

        values = np.asarray(self.values, dtype=float).ravel()
        counts, edges = np.histogram(values[np.isfinite(values)], BINS)
        return json.dumps({"counts": counts.tolist(), "edges": edges.tolist()}).encode()


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


def _all(run: Path) -> Iterator[Medium]:
    for path in sorted((run / FOLDER).glob("*-*")):
        step, _, name = path.stem.partition("-")
        if step.isdecimal() and path.suffix in KINDS:
            yield Medium(int(step), unquote(name), path)


def _encoded(frames: "Sequence[NDArray[np.uint8]]", format: str, **options: object) -> bytes:
    """Returns images in a format of Pillow, with the size of the first. Raises ValueError if one is not an image."""
    import PIL.Image

    images = [*map(rgb, frames)]
    first, *others = [PIL.Image.fromarray(fitted(image, images[0].shape)) for image in images]
    if others:
        options["append_images"] = others
    content = io.BytesIO()
    first.save(content, format, **options)
    return content.getvalue()
