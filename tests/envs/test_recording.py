"""Videos and data sets hold whole episodes in the environment's own units, or a one-line error is given."""

import importlib.util
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rlrun.config.jobs import jobs
from rlrun.envs.config import EnvConfig
from rlrun.envs.making.make import recipe
from rlrun.envs.recording import DataSet, EpisodeRecorder, VideoRecorder, check_camera
from rlrun.errors import ConfigError
from rlrun.settings import parse


def cartpole(**kwargs: Any) -> Any:
    env = jobs(["algo=ppo", "env=CartPole"])[0].values["env"]
    return recipe(parse(EnvConfig, env | {"kwargs": kwargs}, "env"))


class Counts(gym.Env):
    """Observes a dict of the time and an image; rewards are 1, 2, 3; ends after three steps."""

    observation_space = gym.spaces.Dict(
        {"time": gym.spaces.Box(0, 9, (1,), np.float32), "picture": gym.spaces.Box(0, 255, (4, 6, 3), np.uint8)}
    )
    action_space = gym.spaces.Discrete(5)
    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self) -> None:
        self.memory = np.zeros(1, np.float32)  # the same array is returned repeatedly, as by some simulators

    def _obs(self) -> dict[str, Any]:
        return {"time": self.memory, "picture": self.render()}

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.memory[:] = 0
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        self.memory += 1
        time = int(self.memory[0])
        return self._obs(), time, time == 3, False, {}

    def render(self) -> Any:
        return np.full((4, 6, 3), int(self.memory[0]), np.uint8)


def play(env: Any, episodes: int) -> None:
    for episode in range(episodes):
        env.reset(seed=episode)
        over, action = False, 0
        while not over:
            action += 1
            _, _, terminated, truncated, _ = env.step(action)
            over = terminated or truncated
    env.close()


def test_episode_recorder_keeps_whole_episodes_with_the_last_observation() -> None:
    kept: list[dict[str, Any]] = []
    play(EpisodeRecorder(Counts(), 2, kept.append), 5)
    assert len(kept) == 2
    first = kept[0]
    assert [float(t[0]) for t in first["observations"]["time"]] == [0, 1, 2, 3]
    assert [int(a) for a in first["actions"]] == [1, 2, 3] and first["rewards"] == [1, 2, 3]
    assert first["terminations"] == [False, False, True] and not any(first["truncations"])
    assert [episode["seed"] for episode in kept] == [0, 1]


def test_a_data_set_is_read_back_by_minari_bit_for_bit(tmp_path: Path, monkeypatch: Any) -> None:
    minari = pytest.importorskip("minari")
    env = Counts()
    spaces = (env.observation_space, env.action_space)
    data = DataSet(tmp_path / "counts-v0", cartpole(), spaces, {"algorithm_name": "none"})
    play(EpisodeRecorder(env, 3, data.add), 3)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    read = minari.load_dataset("counts-v0")
    assert (read.total_episodes, read.total_steps) == (3, 9)
    for episode in read.iterate_episodes():
        assert episode.observations["time"].tolist() == [[0], [1], [2], [3]]
        assert episode.observations["picture"][3].tolist() == np.full((4, 6, 3), 3).tolist(), "no lossy pictures"
        assert episode.rewards.tolist() == [1, 2, 3] and episode.terminations.tolist() == [False, False, True]
    with pytest.raises(ConfigError, match="exists"):
        DataSet(tmp_path / "counts-v0", cartpole(), spaces, {})


class Nested(Counts):
    """The same with nested actions."""

    action_space = gym.spaces.Dict(
        {"gear": gym.spaces.Discrete(3), "arm": gym.spaces.Tuple([gym.spaces.Box(-1, 1, (2,), np.float32)])}
    )


def test_a_data_set_holds_nested_actions_of_whole_episodes(tmp_path: Path, monkeypatch: Any) -> None:
    minari = pytest.importorskip("minari")
    env = Nested()
    env.action_space.seed(0)
    given = [env.action_space.sample() for _ in range(3)]
    data = DataSet(tmp_path / "nested-v0", cartpole(), (env.observation_space, env.action_space), {})
    recorder = EpisodeRecorder(env, 1, data.add)
    recorder.reset(seed=0)
    for action in given:
        recorder.step(action)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    (episode,) = minari.load_dataset("nested-v0").iterate_episodes()
    assert episode.actions["gear"].tolist() == [action["gear"] for action in given]
    assert episode.actions["arm"][0].tolist() == [action["arm"][0].tolist() for action in given]


def test_video_recorder_writes_every_frame_of_the_requested_episodes(tmp_path: Path) -> None:
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    paths: list[Path] = []

    def start() -> Path:
        paths.append(tmp_path / f"{len(paths)}.mp4")
        return paths[-1]

    check_camera(cartpole(render_mode="rgb_array"), "CartPole-v1")
    env = VideoRecorder(cartpole(render_mode="rgb_array").make(), 2, start)
    steps = []
    for _ in range(3):
        env.reset(seed=0)
        steps.append(1)
        while not any(env.step(0)[2:4]):
            steps[-1] += 1
    env.close()
    assert len(paths) == 2
    for path, count in zip(paths, steps, strict=False):
        assert ffmpeg.count_frames_and_secs(str(path))[0] == count + 1, "the first and the last observation too"


def test_video_of_frames_of_other_kinds_is_not_shifted(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    """Every frame is red, some with alpha, of another size, read-only, in Fortran order, or missing."""
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    red = np.full((64, 64, 4), (255, 0, 0, 255), np.uint8)
    grown = np.full((80, 90, 3), (255, 0, 0), np.uint8)
    shrunk = np.full((64, 60, 3), (255, 0, 0), np.uint8)
    shrunk.flags.writeable = False
    frames = iter([None, red, None, np.asfortranarray(red[..., :3]), red[::-1, ::-1], grown, shrunk])
    written: list[Any] = []

    def write_frames(*args: Any, **options: Any) -> Any:
        while True:
            written.append((yield))

    monkeypatch.setattr(ffmpeg, "write_frames", write_frames)
    env = Counts()
    monkeypatch.setattr(env, "reset", lambda: ({}, {}))
    monkeypatch.setattr(env, "step", lambda action: ({}, 0.0, False, False, {}))
    monkeypatch.setattr(env, "render", lambda: next(frames))
    film = VideoRecorder(env, 1, lambda: tmp_path / "film.mp4")
    film.reset()
    for _ in range(6):
        film.step(0)
    film.close()
    assert capsys.readouterr().err.splitlines() == [
        f"{tmp_path / 'film.mp4'}: 2 frames were None and are left out",
        f"{tmp_path / 'film.mp4'}: 2 frames of another size were cropped or padded to 64 x 64",
    ]
    assert len(written) == 5
    for frame in written:
        assert frame.shape == (64, 64, 3) and frame.flags.c_contiguous
        assert (frame[:, :60] == (255, 0, 0)).all()


def test_video_of_an_environment_without_rendering_is_refused(monkeypatch: Any) -> None:
    blind, broken = Counts(), Counts()
    monkeypatch.setattr(blind, "render", lambda: None)
    monkeypatch.setattr(broken, "render", lambda: 1 / 0)
    with pytest.raises(ConfigError, match=r"^video=true: Blind-v0 renders no image, but None$"):
        check_camera(SimpleNamespace(make=lambda: blind), "Blind-v0")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^video=true: Counts-v0 cannot be rendered here \(division by zero\)$"):
        check_camera(SimpleNamespace(make=lambda: broken), "Counts-v0")  # type: ignore[arg-type]
    there = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if "ffmpeg" in name else there(name, *rest)
    )
    with pytest.raises(ConfigError, match=r"pip install 'rlrun\[video\]'"):
        check_camera(cartpole(), "CartPole-v1")


def test_a_missing_package_for_data_sets_is_one_line(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None)
    with pytest.raises(ConfigError, match=r"pip install 'rlrun\[data\]'"):
        DataSet(tmp_path / "counts-v0", cartpole(), (Counts.observation_space, Counts.action_space), {})
    assert not [*tmp_path.iterdir()]


def test_picture_of_the_agent_stands_beside_the_frame_that_it_acted_on(tmp_path: Path, monkeypatch: Any) -> None:
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    written: list[Any] = []

    def write_frames(*args: Any, **options: Any) -> Any:
        while True:
            written.append((yield))

    monkeypatch.setattr(ffmpeg, "write_frames", write_frames)
    env, seen, acted = Counts(), [0], [0]
    image = np.zeros((40, 40, 3), np.uint8)

    def step(action: int) -> Any:
        seen[0] += 1
        return {}, 0.0, seen[0] == 3, False, {}

    def render() -> Any:
        image.fill(seen[0])  # always the same memory
        return image

    monkeypatch.setattr(env, "reset", lambda: ({}, {}))
    monkeypatch.setattr(env, "step", step)
    monkeypatch.setattr(env, "render", render)
    picture = partial(np.full, (20, 10), dtype=np.uint8)
    film = VideoRecorder(env, 1, lambda: tmp_path / "film.mp4", picture=lambda: picture(fill_value=100 + acted[0]))
    film.reset()
    for number in range(3):
        acted[0] = number
        film.step(0)
    assert [frame.shape for frame in written] == [(40, 60, 3)] * 4
    assert [(frame[0, 0, 0], frame[39, 59, 0]) for frame in written] == [(0, 100), (1, 101), (2, 102), (3, 102)]
