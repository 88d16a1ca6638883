"""Images, videos and histograms, which a run stores in RUN/media."""

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from rlrun.images import fitted, rgb

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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
