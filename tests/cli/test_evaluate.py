"""`rlrun eval` on a real run: a table, a line of JSON, a video, a data set, and no change of the run."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlrun.agents.policy.ppo import PPO
from rlrun.cli import evaluate as cli
from rlrun.cli import main


@pytest.fixture(scope="module")
def run(tmp_path_factory: Any) -> Path:
    path: Path = tmp_path_factory.mktemp("runs") / "run"
    words = ["algo=ppo", "env=CartPole", "trainer.total_steps=512", "trainer.eval_episodes=1", "logger=[tensorboard]"]
    assert main(["train", *words, "env.num_envs=2", "algo.loop.rollout_steps=64", f"run_dir={path}"]) == 0
    return path


def evaluate(capsys: Any, run: Path, *words: str) -> tuple[list[str], dict[str, Any]]:
    assert main(["eval", str(run), *words]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    return lines, json.loads(last)


def test_eval_prints_a_table_and_json_of_the_same_episodes(run: Path, capsys: Any) -> None:
    before = (run / "metrics.jsonl").read_bytes()
    lines, result = evaluate(capsys, run, "episodes=3", "seed=7")
    assert len(result["returns"]) == len(result["lengths"]) == 3
    assert result["returns"] == result["lengths"], "CartPole's rewards are 1"
    assert result["return_mean"] == pytest.approx(sum(result["returns"]) / 3)
    assert lines[1].split() == ["mean", "std", "median", "min", "max"]
    assert lines[2].split()[0] == "returns" and lines[2].split()[1] == f"{result['return_mean']:.2f}"
    assert (run / "metrics.jsonl").read_bytes() == before
    assert evaluate(capsys, run, "episodes=3", "seed=7")[1] == result
    assert evaluate(capsys, run, "episodes=3", "seed=8")[1]["returns"] != result["returns"]


def test_eval_prints_the_success_rate_that_an_environment_reports() -> None:
    result = {"run": "r", "snapshot": "best", "step": 9, "episodes": 2, "returns": [1, 2], "lengths": [3, 4]}
    *others, last = cli.table(result | {"success_rate": 0.5})
    assert last.split() == ["success", "0.50"] and others == cli.table(result)


def test_eval_takes_env_kwargs_and_explore(run: Path, capsys: Any) -> None:
    bounded = evaluate(capsys, run, "episodes=3", "env.kwargs.sutton_barto_reward=true")[1]
    assert bounded["returns"] == [-1.0] * 3, "0 a step and -1 at the fall"
    explored = evaluate(capsys, run, "episodes=3", "explore=true")[1]
    assert explored["returns"] != evaluate(capsys, run, "episodes=3")[1]["returns"]


def test_eval_returns_are_equal_with_video_and_record(run: Path, capsys: Any, tmp_path: Path, monkeypatch: Any) -> None:
    minari, _ = pytest.importorskip("minari"), pytest.importorskip("imageio_ffmpeg")
    plain = evaluate(capsys, run, "episodes=3")[1]
    monkeypatch.setattr(cli, "SHOW_AFTER_S", 0.0)
    assert main(["eval", str(run), "episodes=3", "video=2", f"record={tmp_path / 'demos-v0'}"]) == 0
    out, err = capsys.readouterr()
    result = json.loads(out.splitlines()[-1])
    progress = re.compile(r"filming: [\d,]+ frames of at most [\d,]+, at most [\d:]+ left; frames=N films less")
    assert all(map(progress.fullmatch, err.splitlines()))
    assert 1 < len(err.splitlines()) < 16, "each line comes after twice the time"
    assert result["returns"] == plain["returns"]
    assert [Path(film).parent for film in result["videos"]] == [run / "videos"] * 2
    assert all(Path(film).stat().st_size > 1000 for film in result["videos"])
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    read = minari.load_dataset("demos-v0")
    assert sorted(episode.rewards.sum() for episode in read.iterate_episodes()) == sorted(plain["returns"])
    assert read.env_spec.kwargs == {}


def test_film_has_at_most_the_frames_that_the_user_wants(run: Path, tmp_path: Path, capsys: Any) -> None:
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("videos"))
    result = evaluate(capsys, tmp_path / "run", "episodes=3", "video=2", "frames=5")[1]
    assert [ffmpeg.count_frames_and_secs(film)[0] for film in result["videos"]] == [5, 5]
    assert result["lengths"] == evaluate(capsys, run, "episodes=3")[1]["lengths"]


def test_film_shows_environments_side_by_side(run: Path, tmp_path: Path, capsys: Any) -> None:
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("videos"))
    result = evaluate(capsys, tmp_path / "run", "episodes=3", "video=true", "envs=2", "frames=5")[1]
    (film,) = result["videos"]
    command = [ffmpeg.get_ffmpeg_exe(), "-i", film, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    pixels = subprocess.run(command, capture_output=True, check=True).stdout
    *_, last = np.frombuffer(pixels, np.uint8).reshape(5, 400, 1200, 3)
    for half in (last[:, :600], last[:, 600:]):
        assert half.min() < 50 < 200 < half.max(), "a cart is drawn"
    difference = np.abs(last[:, :600].astype(int) - last[:, 600:])
    assert (difference > 100).sum() > 100, "they are different environments"
    assert result["lengths"] == evaluate(capsys, run, "episodes=3")[1]["lengths"]


def test_film_shows_what_the_agent_draws_beside_the_environment(
    run: Path, tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    """An agent draws by the extra `image` of `act`."""
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("videos"))
    act = PPO.act

    def drawing(self: Any, obs: Any, *others: Any) -> Any:
        action, extras = act(self, obs, *others)
        return action, extras | {"image": torch.full((len(obs), 100, 50, 3), 200, dtype=torch.uint8)}

    monkeypatch.setattr(PPO, "act", drawing)
    result = evaluate(capsys, tmp_path / "run", "episodes=3", "video=true", "frames=3")[1]
    (film,) = result["videos"]
    command = [ffmpeg.get_ffmpeg_exe(), "-i", film, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    pixels = subprocess.run(command, capture_output=True, check=True).stdout
    frames = np.frombuffer(pixels, np.uint8).reshape(3, 400, 600 + 4 * 50, 3)
    assert np.abs(frames[:, :, 604:].astype(int) - 200).max() < 10


def test_film_is_written_in_the_run_whatever_the_name_of_its_folder(
    run: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    """ffmpeg would take the path `file:/...` for an address."""
    pytest.importorskip("imageio_ffmpeg")
    victim = tmp_path / "victim"
    (victim / "run/videos").mkdir(parents=True)
    hostile = tmp_path / "archive" / f"file:{victim}"
    shutil.copytree(run, hostile / "run", ignore=shutil.ignore_patterns("videos"))
    monkeypatch.chdir(tmp_path / "archive")
    assert main(["eval", f"file:{victim}/run", "episodes=1", "video=1"]) == 0
    assert not [*(victim / "run/videos").iterdir()]
    (film,) = (hostile / "run/videos").iterdir()
    assert film.stat().st_size > 1000


def test_film_replaces_a_hard_link_and_leaves_its_file(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("imageio_ffmpeg")
    shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("videos"))
    assert main(["eval", str(tmp_path / "run"), "episodes=1", "video=1"]) == 0
    (film,) = (tmp_path / "run/videos").iterdir()
    film.unlink()
    (tmp_path / "mine").write_text("keep me")
    film.hardlink_to(tmp_path / "mine")
    assert main(["eval", str(tmp_path / "run"), "episodes=1", "video=1"]) == 0
    assert (tmp_path / "mine").read_text() == "keep me" and film.stat().st_size > 1000
    assert [*(tmp_path / "run/videos").iterdir()] == [film]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["record=demos"], "error: record=demos: must be a new folder, named like demos-v0"),
        (
            ["video=true", "episodes=3", "envs=4"],
            "error: envs=4: this evaluation has 3 environments; set more episodes",
        ),
        (["video=-1"], "error: video=-1: must be true, false or how many episodes"),
        (["env.kwargs.gravity=1"], "error: env.kwargs={'gravity': 1}: CartPole-v1 cannot be made"),
    ],
)
def test_bad_input_is_one_line(run: Path, words: list[str], line: str, capsys: Any) -> None:
    assert main(["eval", str(run), *words]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(line) and err.count("\n") == 1


def test_eval_records_meta_learners_after_adaptation(capsys: Any, tmp_path: Path, monkeypatch: Any) -> None:
    minari = pytest.importorskip("minari")
    small = ["env.num_envs=2", "env.max_episode_steps=5", "trainer.total_steps=1", "trainer.eval_episodes=1"]
    words = ["algo=maml", "env=PointGoal", "preset=none", *small, "logger=[tensorboard]", "network.hidden=[8]"]
    assert main(["train", *words, f"run_dir={tmp_path / 'run'}"]) == 0
    _, result = evaluate(capsys, tmp_path / "run", "episodes=3", f"record={tmp_path / 'goals-v0'}")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    recorded = [episode.rewards.sum() for episode in minari.load_dataset("goals-v0").iterate_episodes()]
    assert sorted(recorded) == pytest.approx(sorted(result["returns"]))


def test_eval_records_the_actions_that_the_environment_took(tmp_path: Path, monkeypatch: Any) -> None:
    minari = pytest.importorskip("minari")
    env = tmp_path / "half.py"
    env.write_text(HALF)
    small = ["env.max_episode_steps=3", "trainer.total_steps=8", "trainer.eval_episodes=0", "network.hidden=[4]"]
    words = ["algo=sac", "preset=none", f"env={env}:Half", "env.executed_action=taken", *small, "logger=[tensorboard]"]
    assert main(["train", *words, f"run_dir={tmp_path / 'run'}"]) == 0
    record = f"record={tmp_path / 'half-v0'}"
    assert main(["eval", str(tmp_path / "run"), "episodes=2", record, f"plugins=[{env}]"]) == 0
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    actions = np.concatenate([episode.actions for episode in minari.load_dataset("half-v0").iterate_episodes()])
    assert actions.shape == (6, 1) and (actions == 0.5).all()


HALF = """
import gymnasium as gym
import numpy as np

class Half(gym.Env):
    observation_space = action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 0.0, False, False, {"taken": np.full(1, 0.5, np.float32)}
"""


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("record={}/pulls-v0", "error: record: rlrun/BernoulliBandit-v0 steps all its environments at once"),
        ("video=true", "error: env.kwargs.render_mode=rgb_array: rlrun/BernoulliBandit-v0 has no such render mode"),
    ],
)
def test_eval_refuses_video_of_vectorised_simulators(word: str, line: str, capsys: Any, tmp_path: Path) -> None:
    words = ["algo=ucb", "env=BernoulliBandit", "trainer.total_steps=8", "logger=[tensorboard]"]
    assert main(["train", *words, f"run_dir={tmp_path / 'run'}"]) == 0
    capsys.readouterr()
    assert main(["eval", str(tmp_path / "run"), word.format(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(line) and err.count("\n") == 1
