"""Images, videos and histograms are files of the run, and TensorBoard has them once, also after a resume."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rlrun.media import Histogram, Image, Video
from rlrun.telemetry import Telemetry
from rlrun.telemetry.loggers import make_loggers
from rlrun.telemetry.media import kept

PIXELS = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
VALUES = np.array([[0.0, 1.0, 1.0], [2.0, np.nan, np.inf]])


def train(run: Path, first: int, last: int) -> None:
    log = Telemetry(run, make_loggers({"tensorboard": {}, "csv": {}}), "sac", 100, first - 1)
    for step in range(first, last + 1):
        log.row({"step": step, "wall_s": step / 2, "loss/x": 1.0})
        log.media(step, "eval/view", Image(PIXELS + step))
        log.media(step, "weights", Histogram(VALUES))
    log.close({})


def board(run: Path) -> EventAccumulator:
    return EventAccumulator(str(run / "tb"), size_guidance={"images": 0, "histograms": 0}).Reload()


def test_media_are_shown_once_after_a_resume(tmp_path: Path) -> None:
    train(tmp_path, 1, 5)
    train(tmp_path, 4, 6)
    shown = board(tmp_path)
    images = shown.Images("eval/view")
    assert [image.step for image in images] == [1, 2, 3, 4, 5, 6]
    for image in images:
        assert (image.width, image.height) == (6, 4)
        decoded = np.asarray(Pillow.open(io.BytesIO(image.encoded_image_string)))
        np.testing.assert_array_equal(decoded, PIXELS + image.step)
    histograms = shown.Histograms("weights")
    assert [event.step for event in histograms] == [1, 2, 3, 4, 5, 6]
    found = histograms[0].histogram_value
    assert (found.min, found.max, found.num, sum(found.bucket)) == (0.0, 2.0, 4, 4)


def test_board_of_a_running_run_is_on_disk(tmp_path: Path) -> None:
    log = Telemetry(tmp_path, make_loggers({"tensorboard": {}}), "sac", 100, 0)
    log.row({"step": 1, "wall_s": 0.5, "loss/x": 1.0})
    assert board(tmp_path).Tags()["scalars"] == ["loss/x"]
    log.media(1, "eval/view", Image(PIXELS))
    assert board(tmp_path).Tags()["images"] == ["eval/view"]
    log.close({})


def test_media_after_the_step_of_a_resume_are_deleted(tmp_path: Path) -> None:
    train(tmp_path, 1, 3)
    assert [(medium.step, medium.name) for medium in kept(tmp_path, 2)] == [
        (1, "eval/view"), (1, "weights"), (2, "eval/view"), (2, "weights"),
    ]  # fmt: skip
    assert len(list((tmp_path / "media").iterdir())) == 4


def test_video_is_an_animation_of_all_frames(tmp_path: Path) -> None:
    log = Telemetry(tmp_path, {}, "sac", 100, 0)
    frames = np.zeros((3, 8, 8, 3), dtype=np.uint8)
    frames[1:, 2] = 255
    frames[2:, 5] = 128
    log.media(7, "episode", Video(frames, fps=10))
    log.close({})
    (medium,) = kept(tmp_path, 7)
    with Pillow.open(io.BytesIO(medium.content())) as video:
        assert (getattr(video, "n_frames", 1), video.info["duration"]) == (3, 100)
    assert medium.size() == (8, 8)


def test_frames_with_alpha_and_of_another_size_are_those_of_the_first(tmp_path: Path) -> None:
    log = Telemetry(tmp_path, {}, "sac", 100, 0)
    red = np.full((8, 8, 4), (255, 0, 0, 0), np.uint8)
    log.media(7, "episode", Video([red, np.full((9, 9), 255, np.uint8), red[:4]], fps=10))
    log.close({})
    (medium,) = kept(tmp_path, 7)
    with Pillow.open(io.BytesIO(medium.content())) as video:
        assert getattr(video, "n_frames", 1) == 3
        corners = []
        for place in range(3):
            video.seek(place)
            pixels = np.asarray(video.convert("RGB"))
            assert pixels.shape == (8, 8, 3)
            corners.append((pixels[0, 0].tolist(), pixels[7, 7].tolist()))
    assert corners == [([255, 0, 0], [255, 0, 0]), ([255] * 3, [255] * 3), ([255, 0, 0], [0, 0, 0])]


def test_figure_becomes_an_image() -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2, 1), dpi=50, facecolor="red")
    FigureCanvasAgg(figure)
    image = Image.of_figure(figure)
    pixels = np.asarray(Pillow.open(io.BytesIO(image.content())))
    assert pixels.shape == (50, 100, 3)
    assert pixels[0, 0].tolist() == [255, 0, 0]


def test_medium_that_cannot_be_stored_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = Telemetry(tmp_path, {}, "sac", 100, 0)
    frames = np.zeros((2, 4, 4, 3), np.uint8)
    given: list[tuple[Any, Any, str]] = [
        ("view", Image(np.zeros((2, 2, 7))), "not an image, uint8 [height, width, 3], but float64"),  # type: ignore[arg-type]
        ("film", Video(frames, fps=0), "fps=0: must be above 0"),
        ("film", Video(frames, fps=-5), "fps=-5: must be above 0"),
        ("film", Video(3, 5), ""),  # type: ignore[arg-type]
        (7, Image(frames[0]), ""),
    ]
    for name, value, reason in given:
        log.media(1, name, value)
        line = capsys.readouterr().err
        assert line.startswith(f"{name} at step 1 is not stored: {reason}") and line.count("\n") == 1
    log.close({})
    assert kept(tmp_path, 1) == []
