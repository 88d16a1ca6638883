"""Records the episodes of an evaluation as MP4 videos, and as a data set in Minari's format.

Both recorders wrap single environments inside their EnvSlot, so they record native actions, raw rewards, and the last
observation of every episode. The format of data sets: https://minari.farama.org/content/dataset_standards
"""

import contextlib
import ctypes
import importlib.util
import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from rlrun.envs.making.make import Recipe
from rlrun.envs.stepping import executed
from rlrun.errors import ConfigError, printable
from rlrun.images import fitted, rgb, side_by_side
from rlrun.snapshot.atomic import new_file, rename

FPS = 30  # frames per second of environments without `render_fps` in their metadata


class VideoRecorder(gym.Wrapper):
    """Writes the next `episodes` episodes as MP4 videos, of each at most the first `frames` frames.

    `start()` returns the path of the next video, and `shot` is called after every frame. `picture()` returns an image
    that is shown to the right of a frame, or None; it is called when the agent has acted on what the frame shows.
    Frames of another size than the first are cropped or padded, and None is left out; a line on stderr says so.
    """

    def __init__(
        self,
        env: gym.Env,
        episodes: int,
        start: Callable[[], Path],
        shot: Callable[[], object] = lambda: None,
        frames: float = math.inf,
        picture: Callable[[], np.ndarray | None] = lambda: None,
    ):
        super().__init__(env)
        self.episodes_left, self.start, self.shot, self.picture = episodes, start, shot, picture
        self.waiting: np.ndarray | None = None  # the last frame, which is written when the agent has acted on it
        self.frames = frames
        self.is_filming = False
        self.shots = 0  # of the current episode
        self.writer: Any = None
        self.path = Path()  # of the current video
        self.unfinished = Path()  # where it is until it is complete
        self.shape: tuple[int, ...] = ()  # of its frames
        self.missing = 0  # frames of it that were None
        self.resized = 0  # frames of it that had another size

    def reset(self, **given: Any) -> Any:
        self._cut()
        answer = self.env.reset(**given)
        if self.episodes_left:
            self.episodes_left -= 1
            self.is_filming = True
            self.shots = 0
            self._shoot()
        return answer

    def step(self, action: object) -> Any:
        self._write()
        answer = self.env.step(action)
        if self.is_filming:
            self._shoot()
            if answer[2] or answer[3] or self.shots >= self.frames:
                self._cut()
        return answer

    def close(self) -> None:
        self._cut()
        super().close()

    def _shoot(self) -> None:
        self.shots += 1
        image = self.env.render()
        if image is None:
            self.missing += 1
            return
        self.waiting = rgb(image).copy()  # some environments draw into the memory of their last image

    def _write(self) -> None:
        if self.waiting is None:
            return
        frame, self.waiting = self.waiting, None
        picture = self.picture()
        if picture is not None:
            frame = side_by_side(frame, rgb(picture))
        if self.writer is None:
            self._open(frame.shape)
        if frame.shape != self.shape:
            self.resized += 1
        self.writer.send(fitted(frame, self.shape))
        self.shot()

    def _open(self, shape: tuple[int, ...]) -> None:
        import imageio_ffmpeg

        self.path, self.shape = self.start(), shape
        self.unfinished = new_file(self.path)
        fps = self.env.metadata.get("render_fps") or FPS
        size = (shape[1], shape[0])  # width, height
        place = f"file:{self.unfinished.absolute()}"  # ffmpeg would take a relative path such as http:/a for an address
        self.writer = imageio_ffmpeg.write_frames(place, size, fps=fps, macro_block_size=2, output_params=["-f", "mp4"])
        self.writer.send(None)

    def _cut(self) -> None:
        self._write()
        if self.writer:
            self.writer.close()
            rename(self.unfinished, self.path)
            height, width, _ = self.shape
            if self.missing:
                self._say(f"{self.missing} frames were None and are left out")
            if self.resized:
                self._say(f"{self.resized} frames of another size were cropped or padded to {height} x {width}")
        self.is_filming, self.writer, self.missing, self.resized = False, None, 0, 0

    def _say(self, line: str) -> None:
        print(printable(f"{self.path}: {line}"), file=sys.stderr, flush=True)


class Tiled(gym.Wrapper):
    """Draws several environments as one image, those of `others` first. Without the image of one, it draws None.

    It should be the last of them to step, so that all images are of one timestep.
    """

    def __init__(self, env: gym.Env, others: Sequence[gym.Env]):
        super().__init__(env)
        self.others = others

    def render(self) -> np.ndarray | None:  # type: ignore[override]
        images = [env.render() for env in (*self.others, self.env)]
        if any(image is None for image in images):
            return None
        return tiled([*map(rgb, images)])


class EpisodeRecorder(gym.Wrapper):
    """Passes the next `episodes` complete episodes to `keep`, each as a dict of columns.

    An episode has one observation more than actions. An episode that is not finished is dropped.
    """

    def __init__(
        self,
        env: gym.Env,
        episodes: int,
        keep: Callable[[dict[str, object]], None],
        executed_action: str | None = None,
    ):
        """executed_action: the entry of infos to record as the action, if the environment takes others than it gets."""
        super().__init__(env)
        self.episodes_left, self.keep, self.executed_action = episodes, keep, executed_action
        self.seed: int | None = None
        self.observations: list[object] = []
        self.steps: list[tuple[object, object, bool, bool]] = []

    def reset(self, *, seed: int | None = None, options: dict[str, object] | None = None) -> Any:
        answer = self.env.reset(seed=seed, options=options)
        self.seed, self.observations, self.steps = seed, [_copy(answer[0])], []
        return answer

    def step(self, action: object) -> Any:
        answer = self.env.step(action)
        if self.episodes_left:
            obs, reward, terminated, truncated, info = answer
            if self.executed_action is not None:
                action = executed.read(self.executed_action, self.action_space, info)
            self.observations.append(_copy(obs))
            self.steps.append((_copy(action), _reward(reward), bool(terminated), bool(truncated)))
            if terminated or truncated:
                self.episodes_left -= 1
                self._finish()
        return answer

    def _finish(self) -> None:
        actions, rewards, terminations, truncations = zip(*self.steps, strict=True)
        columns = {"observations": _columns(self.observations), "actions": _columns(actions), "rewards": [*rewards]}
        self.keep(
            columns | {"seed": self.seed, "terminations": [*terminations], "truncations": [*truncations], "infos": {}}
        )


def check_camera(recipe: Recipe, id: str) -> None:
    """Renders one frame. Raises ConfigError with the reason if that fails."""
    if importlib.util.find_spec("imageio_ffmpeg") is None:
        raise ConfigError("video=true: needs a package; pip install 'rlrun[video]'")
    env = None
    try:
        env = recipe.make()
        env.reset(seed=0)
        frame = env.render()
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(f"video=true: {id} cannot be rendered here ({reason[:200]})") from error
    finally:
        if env is not None:
            env.close()
    try:
        rgb(frame)
    except ValueError as error:
        raise ConfigError(f"video=true: {id} renders {error}") from None


def choose_renderer() -> None:
    """Sets environment variables for rendering without a display, unless the user has set them or has a display.

    MuJoCo renders with EGL if it is installed, else with OSMesa; pygame draws into memory. Call this before MuJoCo and
    pygame are imported.
    """
    if os.environ.get("DISPLAY"):
        return
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    for renderer, library in (("egl", "libEGL.so.1"), ("osmesa", "libOSMesa.so.8")):
        with contextlib.suppress(OSError):  # not ctypes.util.find_library, which has compilers search this folder
            ctypes.CDLL(library)
            os.environ.setdefault("MUJOCO_GL", renderer)


def tiled(images: Sequence[np.ndarray]) -> np.ndarray:
    """Returns images [height, width, 3] as one: a grid as square as possible, its rest black.

    Images that are smaller than the largest are padded.
    """
    height, width, channels = np.max([image.shape for image in images], axis=0)
    columns = math.ceil(math.sqrt(len(images)))
    rows = math.ceil(len(images) / columns)
    grid = np.zeros((rows, height, columns, width, channels), np.uint8)
    for i, image in enumerate(images):
        grid[i // columns, :, i % columns] = fitted(image, (height, width, channels))
    return grid.reshape(rows * height, columns * width, channels)


class DataSet:
    """A new data set of complete episodes in Minari's format. The name of `folder` becomes its id, as in `name-v0`.

    `minari.MinariDataset(folder / "data")` reads it, and so does `minari.load_dataset(folder.name)` if
    MINARI_DATASETS_PATH is the parent of `folder`. Images are stored as arrays, not as JPEG. spaces: of observations
    and of actions. Raises ConfigError if minari is not installed, or if `folder` already holds data.
    """

    def __init__(self, folder: Path, recipe: Recipe, spaces: tuple[gym.Space, gym.Space], about: dict[str, Any]):
        if importlib.util.find_spec("minari") is None or importlib.util.find_spec("h5py") is None:
            raise ConfigError(f"record={folder}: needs a package; pip install 'rlrun[data]'")
        from minari import __version__
        from minari.dataset.minari_storage import MinariStorage

        try:
            (folder / "data").mkdir(parents=True)
        except OSError as error:
            raise ConfigError(f"record={folder}: {error.strerror}") from None
        kwargs = {key: value for key, value in recipe.kwargs.items() if key != "render_mode"}
        env = gym.make(recipe.spec, recipe.max_episode_steps, **kwargs)
        spec = env.spec
        env.close()
        self._storage = MinariStorage.new(
            folder.resolve() / "data", *spaces, spec, data_format="hdf5", jpeg_encoding=False
        )
        self._storage.update_metadata(about | {"dataset_id": folder.name, "minari_version": __version__})

    def add(self, episode: dict[str, object]) -> None:
        from minari.data_collector.episode_buffer import EpisodeBuffer

        self._storage.update_episodes([EpisodeBuffer(**episode)])


def _copy(value: object) -> object:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(map(_copy, value))
    return np.array(value)


def _reward(reward: Any) -> object:
    """Returns the reward as a float, or a copy if it is a vector."""
    if np.ndim(reward):
        return np.array(reward)
    return float(reward)


def _columns(items: Any) -> object:
    """Turns a list of equal structures, such as [{"a": 1}, {"a": 2}], into one of lists: {"a": [1, 2]}."""
    if isinstance(items[0], dict):
        columns = {}
        for key in items[0]:
            columns[key] = _columns([item[key] for item in items])
        return columns
    if isinstance(items[0], tuple):
        return tuple(_columns(column) for column in zip(*items, strict=True))
    return [*items]
