"""Images as arrays uint8 [height, width, 3], whatever environments and users draw."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def rgb(image: Any) -> "NDArray[np.uint8]":
    """Returns a contiguous image [height, width, 3]; grey becomes RGB, and alpha is left out.

    Raises ValueError for anything but uint8 [height, width], or [height, width, channels] with 1, 3 or 4 channels.
    """
    import numpy as np

    if image is None:
        raise ValueError("no image, but None")
    pixels = np.asarray(image)
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] not in (1, 3, 4) or not pixels.size:
        raise ValueError(f"not an image, uint8 [height, width, 3], but {pixels.dtype} {[*np.shape(image)]}")
    if pixels.shape[2] == 1:
        pixels = pixels.repeat(3, axis=2)
    return np.ascontiguousarray(pixels[:, :, :3])


def fitted(image: "NDArray[np.uint8]", shape: Sequence[int]) -> "NDArray[np.uint8]":
    """Returns an image of a given shape: cut off on the right and at the bottom, or black there."""
    import numpy as np

    if image.shape == tuple(shape):
        return image
    fit = np.zeros(shape, np.uint8)
    height, width, _ = np.minimum(image.shape, shape)
    fit[:height, :width] = image[:height, :width]
    return fit


def side_by_side(left: "NDArray[np.uint8]", right: "NDArray[np.uint8]") -> "NDArray[np.uint8]":
    """Returns one image of two [height, width, 3], of which the right one is enlarged, by a whole factor, as far as the
    height of the left one allows."""
    import numpy as np

    factor = max(1, len(left) // len(right))
    right = right.repeat(factor, axis=0).repeat(factor, axis=1)
    height = max(len(left), len(right))
    pair = [fitted(image, (height, *image.shape[1:])) for image in (left, right)]
    return np.concatenate(pair, axis=1)
