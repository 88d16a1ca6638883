"""`rlrun watch`, as a user types it: in a window that is drawn into memory, and without a display."""

from pathlib import Path
from typing import Any

import pytest

from rlrun.cli import main

WORDS = [
    "algo=ppo", "env=CartPole", "run_dir=r", "trainer.total_steps=32", "algo.loop.rollout_steps=32", "env.num_envs=1",
    "trainer.eval_episodes=0", "env.selftest=off", "logger.console=false", "logger.tensorboard=false",
]  # fmt: skip


def say(capsys: Any, *words: str) -> tuple[int, list[str], list[str]]:
    code = main(words)
    out, err = capsys.readouterr()
    return code, out.splitlines(), err.splitlines()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> str:
    monkeypatch.chdir(tmp_path)
    assert say(capsys, "train", *WORDS)[0] == 0
    return "r"


def test_watch_plays_episodes_in_a_window(run: str, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from gymnasium.envs.classic_control import CartPoleEnv

    monkeypatch.setenv("DISPLAY", ":7")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    # the trial in a worker has its own tests, and the environment of a worker that runs already has no display
    monkeypatch.setattr("rlrun.run.trained.check_environment", lambda *given, **named: None)
    monkeypatch.setitem(CartPoleEnv.metadata, "render_fps", 100_000)
    drawn = []
    real = CartPoleEnv.render
    monkeypatch.setattr(CartPoleEnv, "render", lambda env: drawn.append(env.render_mode) or real(env))
    code, out, err = say(capsys, "watch", run, "episodes=2", "seed=3")
    assert (code, err) == (0, [])
    lengths = [int(line.split()[-2]) for line in out]
    assert [line.split(":")[0] for line in out] == ["episode 1", "episode 2"]
    assert len(drawn) >= sum(lengths) and {*drawn} == {"human"}
    assert say(capsys, "watch", run, "episodes=1", "seed=3")[1] == out[:1]


def test_watch_without_a_display_names_the_command_that_films(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    code, out, err = say(capsys, "watch", str(tmp_path))
    assert (code, out) == (2, [])
    assert err == [f"error: there is no display here; to film the agent instead: rlrun eval {tmp_path} video=true"]
    assert say(capsys, "watch")[2][0].startswith("error: no run given; usage: rlrun watch RUN ")
    assert say(capsys, "watch", str(tmp_path), "video=true")[0] == 2
