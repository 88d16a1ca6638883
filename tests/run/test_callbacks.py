"""Callbacks: when they are called, what they may do, and how their state is resumed."""

import json
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import safetensors.torch
import torch

import rlrun
from rlrun.cli import main
from rlrun.core.callback import Callback, Callbacks
from rlrun.errors import ConfigError, RunError
from rlrun.media import Histogram, Image
from rlrun.python import Run
from rlrun.run.trained import stored_config
from rlrun.settings import config, register, registry

WORDS = ["algo=sac", "env=Pendulum", "preset=none", "env.max_episode_steps=10", "trainer.total_steps=60",
         "trainer.eval_every=30", "trainer.eval_episodes=1", "trainer.eval_max_steps=5", "trainer.log_every=20",
         "trainer.snapshot_every=30", "network.hidden=[8]", "algo.loop.warmup_steps=20", "algo.loop.batch_size=8",
         "trainer.engine=eager", "logger=[console]"]  # fmt: skip
CALLS: list[tuple[str, Any]] = []


class Recorder(Callback):
    """Records the calls, and counts the episodes."""

    @config
    class Config:
        factor: float = 1.0

    def __init__(self, cfg: Any):
        super().__init__(cfg)
        self.register_buffer("episodes", torch.zeros(()))

    def on_start(self) -> None:
        CALLS.append(("start", self.run.path))

    def on_step(self, step: Any) -> None:
        CALLS.append(("step", [*step["reward"].shape]))

    def on_episode(self, episode_return: Any, length: int) -> None:
        self.episodes.add_(1)
        CALLS.append(("episode", length))

    def on_evaluation(self, metrics: Any) -> None:
        CALLS.append(("evaluation", metrics["eval/return_mean"]))

    def on_row(self, row: Any) -> None:
        CALLS.append(("row", row["step"]))
        self.log("episodes", self.cfg.factor * float(self.episodes))

    def on_snapshot(self, name: str) -> None:
        CALLS.append(("snapshot", name))

    def on_end(self, summary: Any) -> None:
        CALLS.append(("end", summary["status"]))


class StopEarly(Callback):
    def on_row(self, row: Any) -> None:
        if row["step"] >= 40:
            self.run.stop("40 steps are enough")


class StopAtBest(Callback):
    def on_snapshot(self, name: str) -> None:
        if name == "best":
            self.run.stop("this is good enough")


class StopAtEpisode(Callback):
    def on_episode(self, episode_return: Any, length: int) -> None:
        self.run.stop("one episode is enough")


class Returns(Callback):
    def on_episode(self, episode_return: Any, length: int) -> None:
        self.log("return", episode_return)


class Meddler(Callback):
    """Changes the learning rate."""

    changes = "the learning rate of the actor"

    def on_row(self, row: Any) -> None:
        self.run.loop.agent.actor_optim.learning_rate.mul_(0.5)


class Painter(Callback):
    """Shows a histogram of the actor's weights and an image with every row."""

    def on_row(self, row: Any) -> None:
        weights = [param.detach().numpy().ravel() for param in self.run.loop.agent.actor.parameters()]
        self.show("weights", Histogram(np.concatenate(weights)))
        self.show("square", Image(np.full((4, 4, 3), 200, np.uint8)))


class Careless(Callback):
    """Changes what it is given."""

    def on_episode(self, episode_return: Any, length: int) -> None:
        episode_return[0] = 1e9

    def on_end(self, summary: Any) -> None:
        summary["status"] = "spoiled"


class Faulty(Callback):
    def on_row(self, row: Any) -> None:
        raise ZeroDivisionError("a row is no good")


class Leaving(Callback):
    def on_row(self, row: Any) -> None:
        sys.exit("enough")


@pytest.fixture(autouse=True)
def callbacks() -> Any:
    """Registers the callbacks of this module for one test."""
    CALLS.clear()
    own = {
        "recorder": Recorder,
        "stop_early": StopEarly,
        "returns": Returns,
        "meddler": Meddler,
        "faulty": Faulty,
        "painter": Painter,
        "stop_at_best": StopAtBest,
        "stop_at_episode": StopAtEpisode,
    }
    for name, cls in own.items():
        register("callback", name)(cls)
    yield
    for name in own:
        registry._registry["callback"].pop(name)


def train(folder: Path, *words: str) -> Run:
    given = {word.partition("=")[0] for word in words}
    own = [word for word in WORDS if word.partition("=")[0] not in given]
    return rlrun.train(*own, *words, run_dir=str(folder))


def rows(run: Any) -> list[dict[str, Any]]:
    """The rows without clocks and without the metrics of callbacks."""
    own = ("time/", "sys/", "wall_s", "custom/")
    return [{key: value for key, value in row.items() if not key.startswith(own)} for row in run.rows]


def weights(run: Any) -> dict[str, torch.Tensor]:
    """The agent's tensors in the last snapshot."""
    return safetensors.torch.load_file(run.path / "snapshots" / "step_000000060" / "agent.safetensors")


def test_callback_is_called_at_every_event_and_leaves_the_run_as_it_is(tmp_path: Path) -> None:
    plain = train(tmp_path / "plain")
    run = train(tmp_path / "run", "callbacks=[recorder]")
    assert rows(run) == rows(plain)
    assert all(torch.equal(tensor, weights(run)[name]) for name, tensor in weights(plain).items())
    assert CALLS[0] == ("start", run.path) and CALLS[-1] == ("end", "done")
    counted = {event: [value for name, value in CALLS if name == event] for event, _ in CALLS}
    assert counted["step"] == [[1]] * 60
    assert counted["episode"] == [10] * 6
    assert counted["row"] == [row["step"] for row in run.rows] == [20, 30, 40, 60]
    assert counted["evaluation"] == [row["eval/return_mean"] for row in run.rows if "eval/return_mean" in row]
    assert [name for name in counted["snapshot"] if name != "best"] == ["step_000000030", "step_000000060"]
    assert [row["custom/episodes"] for row in run.rows] == [2.0, 3.0, 4.0, 6.0]


def test_numbers_of_episodes_are_in_the_rows_of_evaluations_too(tmp_path: Path) -> None:
    run = train(tmp_path / "run", "callbacks=[returns]", "env.max_episode_steps=5")
    means = [row["train/return_mean"] for row in run.rows]
    assert len(means) == 4 and [row["custom/return"] for row in run.rows] == pytest.approx(means)


def test_callback_takes_settings_and_checks_them(tmp_path: Path) -> None:
    run = train(tmp_path / "run", "callbacks=[{name: recorder, factor: 10.0}]")
    assert run.rows[-1]["custom/episodes"] == 60.0
    with pytest.raises(ConfigError, match=r"^callbacks\.0\.facto: unknown key; did you mean callbacks\.0\.factor"):
        train(tmp_path / "other", "callbacks=[{name: recorder, facto: 10.0}]")
    with pytest.raises(ConfigError, match=r"unknown name 'recoder'; did you mean recorder"):
        train(tmp_path / "other", "callbacks=[recoder]")
    with pytest.raises(ConfigError, match=r"^callbacks: recorder is listed twice with the same settings"):
        train(tmp_path / "other", "callbacks=[recorder,recorder]")
    assert not (tmp_path / "other").exists()


def test_state_of_a_callback_is_resumed(tmp_path: Path) -> None:
    words = ["callbacks=[recorder]", "trainer.eval_every=0"]
    whole = train(tmp_path / "whole", *words)
    short = [word for word in WORDS if "total_steps" not in word]
    half = rlrun.train(*short, *words, "trainer.total_steps=40", run_dir=str(tmp_path / "half"))
    half.resume(total_steps=60)
    assert [row["custom/episodes"] for row in half.rows] == [row["custom/episodes"] for row in whole.rows]
    assert CALLS.count(("start", half.path)) == 2


def test_callback_may_stop_the_run(tmp_path: Path) -> None:
    run = train(tmp_path / "run", "callbacks=[stop_early]")
    assert (run.summary["status"], run.summary["step"]) == ("done", 40)
    assert run.summary["stop_reason"] == "40 steps are enough"
    assert (run.path / "snapshots" / "step_000000040").exists()


@pytest.mark.parametrize(("name", "step"), [("stop_at_best", 30), ("stop_at_episode", 10)])
def test_run_that_a_callback_stops_has_a_last_row_and_snapshot(name: str, step: int, tmp_path: Path) -> None:
    run = train(tmp_path / "run", f"callbacks=[{name}]")
    assert (run.summary["status"], run.summary["step"]) == ("done", step)
    assert run.rows[-1]["step"] == step
    assert (run.path / "snapshots" / f"step_{step:09d}").exists()


def test_callback_that_changes_the_run_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = train(tmp_path / "run", "callbacks=[meddler]")
    said = capsys.readouterr().out
    assert "callback meddler changes the learning rate of the actor: a resume continues the run not exactly" in said
    run.resume(total_steps=80)
    verdict = json.loads((run.path / "meta.json").read_text())["resumed"][0]["verdict"]
    assert verdict == "not exact, because callback meddler changes the learning rate of the actor"


def test_callback_shows_images_and_histograms(tmp_path: Path) -> None:
    run = train(tmp_path / "run", "callbacks=[painter]")
    names = {path.name for path in (run.path / "media").iterdir()}
    for step in (20, 30, 40, 60):
        assert {f"{step:012d}-weights.json", f"{step:012d}-square.png"} <= names


def test_callback_that_raises_ends_the_run_with_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *WORDS, "callbacks=[faulty]", f"run_dir={tmp_path / 'run'}"]) == 1
    said = capsys.readouterr().err
    assert "error: callback faulty: on_row: ZeroDivisionError: a row is no good" in said
    assert "Traceback" not in said
    with pytest.raises(RunError, match="failed, exit code 1: callback faulty: on_row: ZeroDivisionError"):
        train(tmp_path / "other", "callbacks=[faulty]")


def test_callback_that_calls_sys_exit_ends_the_run_with_one_line() -> None:
    with pytest.raises(RunError, match=r"^callback Leaving: on_row: SystemExit: enough$"):
        Callbacks([Leaving()]).call("on_row", {})


def test_callback_cannot_change_returns_and_summary() -> None:
    callbacks = Callbacks([Careless(), Careless()])
    returns, summary = [1.0, 2.0], {"status": "done"}
    callbacks.call("on_episode", returns, 10)
    callbacks.call("on_end", summary)
    assert (returns, summary) == ([1.0, 2.0], {"status": "done"})


class Talkative(gym.Env[np.ndarray, np.ndarray]):
    """Reports the step of its episode in infos, and logs twice that number. `gain` scales the reward."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self) -> None:
        self.gain = 1.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        assert not options
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        rlrun.log("double", 2 * self.steps)
        info = {"steps": self.steps, "text": "no number", "is_success": True}
        return np.zeros(1, np.float32), self.gain, False, self.steps == 10, info


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_environments_log_numbers(backend: str, tmp_path: Path) -> None:
    words = [word for word in WORDS if not word.startswith("env=")]
    words += [f"env.backend={backend}", "env.num_envs=2", "env.log_info=[steps]", "callbacks=[episodes]"]
    run = rlrun.train(*words, env=Talkative, run_dir=str(tmp_path / "run"))
    assert [row["custom/steps"] for row in run.rows] == [5.5, 3.0, 8.0, 5.5]
    assert [row["custom/double"] for row in run.rows] == [11.0, 6.0, 16.0, 11.0]
    assert [row.get("custom/steps_last_step") for row in run.rows] == [10.0, None, 10.0, 10.0]
    header, *episodes = (run.path / "episodes.csv").read_text().splitlines()
    assert header.split(",")[-2:] == ["return", "info_steps"]
    assert [line.split(",")[-1] for line in episodes] == ["10.0"] * 6


class Reset(Talkative):
    """Logs in its resets whether it is that of an evaluation."""

    def __init__(self, evaluates: bool = False):
        super().__init__()
        self.evaluates = evaluates

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        rlrun.log("evaluates", self.evaluates)
        return super().reset(seed=seed, options=options)


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_numbers_of_evaluations_are_no_metrics_of_the_training(backend: str, tmp_path: Path) -> None:
    words = [word for word in WORDS if not word.startswith("env=")]
    words += [f"env.backend={backend}", "env.eval_kwargs={evaluates: true}", f"run_dir={tmp_path / 'run'}"]
    run = rlrun.train(*words, env=Reset)
    assert {row["custom/evaluates"] for row in run.rows if "custom/evaluates" in row} == {0.0}


def test_info_that_is_no_number_is_refused(tmp_path: Path) -> None:
    words = [word for word in WORDS if not word.startswith("env=")]
    with pytest.raises(RunError):
        rlrun.train(*words, "env.log_info=[text]", env=Talkative, run_dir=str(tmp_path / "run"))
    error = (tmp_path / "run" / "error.log").read_text()
    assert "env.log_info: info['text'] is 'no number' instead of being a number" in error


def test_resume_adds_callbacks_that_change_nothing(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", "callbacks=[returns]", "trainer.total_steps=100")
    words = ["callbacks=[returns]", "trainer.snapshot_every=20"]
    run = train(tmp_path / "run", *words)
    added = ["callbacks=[{name: recorder, factor: 10.0}, returns]", "total_steps=80"]
    assert main(["resume", str(run.path), *added]) == 0
    assert [row.get("custom/episodes") for row in run.rows if row["step"] > 60] == [20.0]
    assert [values["name"] for values in stored_config(run.path).callbacks] == ["returns", "recorder"]
    run.resume("callbacks=[returns]", total_steps=100)
    assert run.rows[-1]["custom/episodes"] == 40.0, "its state is resumed"
    assert [entry["verdict"] for entry in json.loads((run.path / "meta.json").read_text())["resumed"]] == ["exact"] * 2
    assert rows(run)[-1] == rows(whole)[-1]


def test_resume_adds_no_callback_that_changes_the_run(tmp_path: Path) -> None:
    run = train(tmp_path / "run")
    with pytest.raises(ConfigError, match=r"^callbacks: meddler changes the learning rate .*: rlrun reset$"):
        run.resume("callbacks=[meddler]", total_steps=80)
    with pytest.raises(ConfigError, match=r"^callbacks=3: must be a list: callbacks=\[\{name: my_callback\}\]$"):
        run.resume("callbacks=3", total_steps=80)
    with pytest.raises(ConfigError, match="unknown name 'watchr'"):
        run.resume("callbacks=[watchr]", total_steps=80)
    run.resume(total_steps=80)
    new = run.reset("callbacks=[meddler]", into=tmp_path / "new", total_steps=40)
    assert [values["name"] for values in stored_config(new.path).callbacks] == ["meddler"]
