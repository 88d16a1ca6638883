"""Images of any kind become uint8 [height, width, 3], or are refused."""

import numpy as np
import pytest

from rlrun.images import fitted, rgb

RGBA = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)


def test_rgb_leaves_alpha_out_and_repeats_grey():
    grey = RGBA[:, :, 0]
    assert rgb(RGBA).tolist() == RGBA[:, :, :3].tolist()
    assert rgb(RGBA[:, ::-1, :3]).tolist() == RGBA[:, ::-1, :3].tolist()
    for image in (grey, grey[:, :, None]):
        assert rgb(image).tolist() == np.stack([grey, grey, grey], 2).tolist()
    for image in (RGBA, grey, RGBA[::-1]):
        assert rgb(image).flags.c_contiguous


@pytest.mark.parametrize(
    ("image", "line"),
    [
        (None, "no image, but None"),
        (RGBA / 255, r"not an image, uint8 \[height, width, 3\], but float64 \[2, 3, 4\]"),
        (RGBA.astype(np.int64), r"not an image, .* int64 \[2, 3, 4\]"),
        (RGBA[:, :, :2], r"not an image, .* uint8 \[2, 3, 2\]"),
        (np.zeros((3, 64, 64), np.uint8), r"not an image, .* uint8 \[3, 64, 64\]"),
        (np.zeros((0, 4, 3), np.uint8), r"not an image, .* uint8 \[0, 4, 3\]"),
        ([RGBA], r"not an image, .* uint8 \[1, 2, 3, 4\]"),
        ("text", r"not an image, .* <U4 \[\]"),
    ],
)
def test_rgb_refuses_what_is_no_image(image, line):
    with pytest.raises(ValueError, match=f"^{line}$"):
        rgb(image)


def test_fitted_crops_and_pads_without_moving_pixels():
    image = rgb(RGBA)
    fit = fitted(image, (3, 2, 3))
    assert fit[:2].tolist() == image[:, :2].tolist() and not fit[2].any()
    assert fitted(image, image.shape) is image
