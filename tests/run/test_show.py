"""The callback `show` films the agent after evaluations."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import rlrun
from rlrun.callbacks import show
from rlrun.core.callback import Callback
from rlrun.errors import RunError
from rlrun.python import Run
from rlrun.settings import register, registry
from rlrun.telemetry.media import Medium, kept

WORDS = ["algo=sac", "preset=none", "trainer.total_steps=60", "trainer.eval_every=10", "trainer.eval_episodes=1",
         "trainer.log_every=20", "network.hidden=[8]", "algo.loop.warmup_steps=20", "algo.loop.batch_size=8",
         "trainer.engine=eager", "logger=[]"]  # fmt: skip
MODES: list[str | None] = []


class Drawn(gym.Env[np.ndarray, np.ndarray]):
    """Its images show the step of the episode, which it also logs. Episodes have 10 steps."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    metadata = {"render_modes": ["rgb_array", "human"], "render_fps": 5}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None, blind: bool = False):
        self.render_mode, self.blind = render_mode, blind
        MODES.append(render_mode)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        rlrun.log("steps", self.steps if self.render_mode is None else 100)
        return np.full(1, self.steps / 10, np.float32), float(action[0]), self.steps == 10, False, {}

    def render(self) -> Any:
        if self.render_mode == "human" or self.blind:
            return None
        return np.full((16, 16, 3), 20 * self.steps, np.uint8)


class Noted(Callback):
    def on_evaluation(self, metrics: Any) -> None:
        self.log("evaluations", 1.0)


@pytest.fixture(autouse=True)
def noted() -> Iterator[None]:
    register("callback", "noted")(Noted)
    yield
    registry._registry["callback"].pop("noted")


def train(folder: Path, *words: str) -> Run:
    return rlrun.train(*WORDS, *words, env=Drawn, run_dir=str(folder))


def rows(run: Run) -> list[dict[str, Any]]:
    return [{key: row[key] for key in row if not key.startswith(("time/", "sys/", "wall_s"))} for row in run.rows]


def films(run: Run) -> list[Medium]:
    return kept(run.path, 1000)


def frames(film: Medium) -> list[int]:
    """Returns the colour of each frame."""
    picture: Any = film.picture()
    found = []
    for index in range(picture.n_frames):
        picture.seek(index)
        found.append(np.asarray(picture.convert("RGB"))[0, 0, 0])
    return found


def test_show_films_every_nth_evaluation_and_changes_nothing_also_after_a_resume(tmp_path: Path) -> None:
    shown = "callbacks=[noted, {name: show, every: 2}]"
    plain = train(tmp_path / "plain", "callbacks=[noted]")
    whole = train(tmp_path / "whole", shown)
    half = train(tmp_path / "half", shown, "trainer.total_steps=30")
    half.resume(total_steps=60, env=Drawn)
    assert rows(whole) == rows(half) == rows(plain)
    assert [film.step for film in films(whole)] == [20, 40, 60]
    assert [film.content() for film in films(half)] == [film.content() for film in films(whole)]
    assert frames(films(whole)[0]) == pytest.approx([20 * step for step in range(11)], abs=4)


def test_films_have_at_most_the_frames_of_the_setting(tmp_path: Path) -> None:
    run = train(tmp_path / "run", "callbacks=[{name: show, frames: 4}]", "trainer.total_steps=10")
    assert len(frames(films(run)[0])) == 4


def test_show_in_a_window_stores_no_film(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    MODES.clear()
    words = ["callbacks=[{name: show, window: true}]", "trainer.total_steps=10"]
    monkeypatch.setattr(show, "has_display", lambda: True)
    run = train(tmp_path / "run", *words)
    assert MODES.count("human") == 1 and not (run.path / "media").exists()
    monkeypatch.setattr(show, "has_display", lambda: False)
    with pytest.raises(RunError, match=r"exit code 2: callbacks: show: window=true: there is no display here$"):
        train(tmp_path / "other", *words)


def test_show_of_an_environment_without_images_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"exit code 2: callbacks: show: the environment draws no images$"):
        train(tmp_path / "run", "callbacks=[show]", "env.kwargs.blind=true")
