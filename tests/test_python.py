"""The Python API: train a run, load its policy, act as in an evaluation."""

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from made_runs import make_run

import rlrun
from rlrun import python
from rlrun.cli import main
from rlrun.config import sources
from rlrun.config.compose import Composer, literal
from rlrun.config.jobs import Job
from rlrun.envs.making.passed import passed
from rlrun.errors import ConfigError, RunError
from rlrun.formats.history import FORMAT
from rlrun.run.job import Done
from rlrun.run.trained import restored
from rlrun.types import carried

SMALL = ["preset=none", "env.num_envs=2", "trainer.total_steps=60", "trainer.eval_episodes=1", "network.hidden=[8]",
         "trainer.eval_max_steps=5", "logger=[]"]  # fmt: skip
REPLAY = ["algo.loop.warmup_steps=20", "algo.loop.batch_size=8"]
CASES = {
    "sac": ["env=Pendulum", *REPLAY],
    "ppo_lstm": ["env=Pendulum", "network.features=8", "env.normalize=obs", "algo.loop.rollout_steps=10"],
    "dqn": ["env=CartPole", *REPLAY],
}


def trained(algo: str, folder: Path) -> Path:
    return rlrun.train(f"algo={algo}", *CASES[algo], *SMALL, run_dir=str(folder / "run")).path


@pytest.mark.parametrize("algo", CASES)
def test_policy_acts_as_an_evaluation_does(algo: str, tmp_path: Path) -> None:
    path = trained(algo, tmp_path)
    policy = rlrun.load(path)
    with restored(path, 3, 0, {}) as found:
        env = found.env
        obs, carry = env.reset(), {"first": torch.ones(3, dtype=torch.bool)}
        for _ in range(5):
            action, extras = found.addons.act(found.agent, obs, carry, False)
            native = env.actions.to_native(env.actions.clip(action.numpy()))
            assert np.array_equal(policy.act(obs.numpy()), native)
            obs, carry = env.step(action)[0]["following"], carried(extras, torch.zeros(3, dtype=torch.bool))


def test_policy_takes_one_observation_or_a_batch(tmp_path: Path) -> None:
    policy = rlrun.load(trained("sac", tmp_path))
    one, other = np.array([1.0, 0.0, 0.5]), np.array([0.0, 1.0, -0.5])
    single = policy.act(one)
    assert single.shape == (1,) and policy.action_space.contains(single)
    batch = policy.act(np.stack([one, other]))
    assert batch.shape == (2, 1) and batch[0] == pytest.approx(single, abs=1e-6)
    assert not np.array_equal(policy.act(one, explore=True), single)
    with pytest.raises(ValueError, match=r"shape \[4\]; expected \[3\]"):
        policy.act(np.zeros(4))


def test_policy_remembers_until_it_is_reset(tmp_path: Path) -> None:
    policy = rlrun.load(trained("ppo_lstm", tmp_path))
    obs = np.array([1.0, 0.0, 0.5])
    first = policy.act(obs)
    assert not np.array_equal(policy.act(obs), first)
    policy.reset()
    assert np.array_equal(policy.act(obs), first)


def test_policy_reset_advances_goals_as_an_evaluation_does(tmp_path: Path) -> None:
    words = ["algo=sac", "algo.goals=categorical", *CASES["sac"], *SMALL]
    path = rlrun.train(*words, run_dir=str(tmp_path / "run")).path
    policy = rlrun.load(path)
    first = torch.ones(2, dtype=torch.bool)
    obs = np.tile(np.float32([1.0, 0.0, 0.5]), (2, 1))
    with restored(path, 2, 0, {}) as found:
        goals, carry = [], {"first": first}
        for _ in range(3):
            action, extras = found.addons.act(found.agent, torch.as_tensor(obs), carry, False)
            native = found.env.actions.to_native(found.env.actions.clip(action.numpy()))
            assert np.array_equal(policy.act(obs), native)
            goals.append(extras["carry.goal"].tolist())
            carry = carried(extras, first)
            policy.reset()
    assert goals == [[0, 1], [2, 3], [0, 1]]
    assert not np.array_equal(policy.act(obs), native)


def test_train_returns_the_run_and_raises_as_the_command_line_says(tmp_path: Path) -> None:
    run = rlrun.train("algo=dqn", *CASES["dqn"], *SMALL, seed=3, run_dir=str(tmp_path / "run"))
    assert run.summary["status"] == "done" and run.summary["step"] == 60
    assert run.rows[-1]["step"] == 60
    assert isinstance(rlrun.load(run.path).act(np.zeros(4)), np.integer)
    with pytest.raises(ConfigError, match=r"did you mean algo\.gamma"):
        rlrun.train("algo=dqn", "env=CartPole", "algo.gama=0.9")
    with pytest.raises(ConfigError):
        rlrun.load(tmp_path)


def test_resume_switches_loggers_and_logs_nothing_from_before_it_began(tmp_path: Path) -> None:
    words = [*CASES["dqn"], "env.backend=torch", *SMALL]  # other environments discard logs when restored
    run = rlrun.train("algo=dqn", *words, run_dir=str(tmp_path / "run"))
    rlrun.log("leftover", 1.0)
    resumed = run.resume("logger=[csv]", total_steps=70)
    assert (run.path / "metrics.csv").is_file()
    rlrun.log("leftover", 1.0)
    branch = run.resume(total_steps=80, into=str(tmp_path / "branch"))
    rlrun.log("leftover", 1.0)
    reset = run.reset(into=str(tmp_path / "reset"), logger=["csv"])
    assert (reset.path / "metrics.csv").is_file()
    for one in (resumed, branch, reset):
        assert not any("custom/leftover" in row for row in one.rows), one.path.name


def test_importing_rlrun_takes_no_torch() -> None:
    code = "import sys, rlrun; assert 'torch' not in sys.modules; assert rlrun.train and 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


class Reach(gym.Env[np.ndarray, np.ndarray]):
    """A point on a line that must reach the goal within ten steps."""

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, goal: float = 0.5):
        self.goal = goal

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.x, self.steps = self.np_random.uniform(-1, 1), 0
        return self.observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.x = float(np.clip(self.x + 0.1 * action[0], -1, 1))
        self.steps += 1
        return self.observation(), -abs(self.x - self.goal), False, self.steps == 10, {}

    def observation(self) -> np.ndarray:
        return np.array([self.x, self.goal], np.float32)


@pytest.mark.parametrize("env", [Reach, Reach(0.2), lambda: Reach(0.1)], ids=["class", "object", "function"])
def test_environment_may_be_passed_as_an_object(env: Any, tmp_path: Path) -> None:
    run = rlrun.train("algo=sac", *REPLAY, *SMALL, env=env, run_dir=str(tmp_path / "run"))
    with pytest.raises(ConfigError, match=r"^env=object/\w+-v0: was passed as an object .* run\.resume\(env=\.\.\.\)"):
        run.resume(total_steps=80)
    assert main(["resume", str(run.path), "total_steps=80"]) == 2
    resumed = run.resume(total_steps=80, env=env)
    assert resumed.path == run.path and resumed.summary["step"] == 80
    assert run.load(env=env).act(np.zeros(2)).shape == (1,)
    assert run.evaluate(2, env=env).lengths == [5, 5]  # trainer.eval_max_steps
    assert not [id for id in gym.registry if id.startswith("object/")]


def test_resumed_run_of_a_passed_environment_equals_one_that_never_stopped(tmp_path: Path) -> None:
    words = ["algo=sac", *REPLAY, *SMALL, "trainer.log_every=30", "trainer.eval_every=30"]
    whole = rlrun.train(*words, env=Reach, run_dir=str(tmp_path / "whole"))
    short = [word.replace("total_steps=60", "total_steps=30") for word in words]
    half = rlrun.train(*short, env=Reach, run_dir=str(tmp_path / "half"))
    half = half.resume(total_steps=60, env=Reach)
    (rows, other) = ([without_clocks(row) for row in run.rows if row["step"] == 60] for run in (whole, half))
    assert rows and rows == other


def without_clocks(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if not key.startswith(("time/", "sys/", "wall_s"))}


def test_passed_environment_survives_a_call_within_a_call() -> None:
    with passed(Reach) as outer:
        with passed(Reach) as inner:
            assert inner == outer
        assert gym.spec(outer).entry_point is Reach
    assert not [id for id in gym.registry if id.startswith("object/")]


def stored_run(folder: Path, env: str) -> rlrun.Run:
    """A folder with a config alone."""
    (folder / "config.yaml").write_text(f"format: {FORMAT}\nenv: {{id: {env}}}\n")
    return rlrun.Run(folder)


@pytest.mark.parametrize("method", ["evaluate", "load", "resume"])
def test_environment_that_the_run_was_not_trained_with_is_refused(method: str, tmp_path: Path) -> None:
    call = getattr(stored_run(tmp_path, "CartPole-v1"), method)
    for env in ("Pendulum", Reach, Reach()):
        with pytest.raises(ConfigError, match=r"^env=(Pendulum|Reach): the run has an environment; pass one only if"):
            call(env=env)
    stored_run(tmp_path, "object/Other-v0")
    with pytest.raises(ConfigError, match=r"^env=Reach: the run was trained with object/Other-v0; pass the object"):
        call(env=Reach)


@pytest.mark.parametrize(
    "value",
    [
        "/tmp/josé",
        "/tmp/x (1)/a",
        "a,b",
        "123",
        "1e5",
        "true",
        "x=y {z}",
        "",
        "it's",
        "a\\",
        "a\\'b",
        '"',
        "[a]",
        "a: b",
    ],
)
def test_text_of_an_argument_is_literal(value: str) -> None:
    composer = Composer(sources.folders([]))
    assert composer.read(f"name={literal(value)}").values == (value,)
    assert composer.read(f"name={literal([value, 'x'])}").values == ([value, "x"],)
    assert composer.read(f"name={literal({'a': value})}").values == ({"a": value},)


def test_arguments_may_be_paths_tuples_and_numbers_of_numpy(tmp_path: Path) -> None:
    folder = tmp_path / "josé (1), a"
    values = {"trainer.total_steps": np.int64(20), "env.num_envs": 2.0, "logger": ("csv",)}
    words = [word for word in SMALL if word.partition("=")[0] not in values]
    run = rlrun.train("algo=dqn", *CASES["dqn"], *words, "trainer.eval_every=0", run_dir=folder, name="123", **values)
    assert run.path == folder and run.summary["step"] == 20 and (folder / "metrics.csv").exists()
    branch = rlrun.Run(str(folder)).resume(total_steps=np.float64(24), into=tmp_path / "x, y", plugins=())
    assert branch.path == tmp_path / "x, y" and branch.summary["step"] == 24


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"episodes": 0}, r"^episodes=0: must be a whole number, 1 to 1,000,000$"),
        ({"seed": -1}, r"^seed=-1: must be a whole number, at least 0$"),
        ({"explore": 1}, r"^explore=1: must be true or false$"),
        ({"plugins": "foo"}, r"^plugins=foo: must be a list"),
    ],
)
def test_arguments_of_an_evaluation_are_checked(arguments: dict[str, Any], line: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=line):
        rlrun.evaluate(tmp_path, **arguments)


def test_words_that_are_no_text_are_refused(tmp_path: Path) -> None:
    for call in (rlrun.train, rlrun.Run(tmp_path).resume):
        with pytest.raises(ConfigError, match=r"^1: is no text such as 'algo=sac'"):
            call(1)  # type: ignore[arg-type, operator]
    with pytest.raises(ConfigError, match=r"^plugins=foo: must be a list of modules$"):
        rlrun.load(tmp_path, plugins="foo")


def test_folder_of_further_files_may_be_an_argument_or_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "preset").mkdir()
    (tmp_path / "preset/ours.yaml").write_text("algo: {gamma: 0.5}\n")
    found = []

    def train_job(job: Job) -> Done:
        found.append(job)
        return Done(tmp_path, 0)

    monkeypatch.setattr(python, "train_job", train_job)
    words = ("algo=dqn", "env=CartPole", "preset=ours")
    rlrun.train(*words, config_dir=tmp_path)
    rlrun.train(*words, "--config-dir", str(tmp_path))
    assert [(job.values["algo"]["gamma"], job.words) for job in found] == [(0.5, list(words))] * 2


def test_runs_are_found_by_their_settings(tmp_path: Path) -> None:
    deep = make_run(tmp_path / "a/deep", {10: 1.0}, algo="dqn", typed="double_dqn", gamma=0.9)
    plain = make_run(tmp_path / "b", {10: 1.0}, algo="dqn", env="Acrobot-v1", seed=3, gamma=0.99)
    (plain / "overrides.yaml").write_text("[env=Acrobot]")
    (tmp_path / "c").mkdir()
    (tmp_path / "c/config.yaml").write_text("[")

    def found(*words: str) -> list[Path]:
        with pytest.warns(UserWarning, match="skipped .*c: "):
            return [run.path for run in rlrun.runs(*words, folder=tmp_path)]

    assert found() == [deep, plain]
    assert found("algo=dqn") == found("algo.gamma=99e-2") == found("seed=3") == [plain]
    assert found("algo=double_dqn", "algo.gamma=0.9") == found("env=CartPole-v1") == found("seed=0") == [deep]
    assert found("env=Acrobot") == found("env=Acrobot-v1") == [plain] and found("algo=dqn", "seed=0") == []
    with pytest.raises(ConfigError, match=r"^algo\.gama=0\.9: no run in .* has this key$"):
        found("algo.gama=0.9")
    with pytest.raises(ConfigError, match=r"^none: no such folder$"):
        rlrun.runs(folder="none")
    assert rlrun.Run(deep).config["algo"]["gamma"] == 0.9


def test_error_of_a_run_has_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python, "resume_run", lambda *_: Done(tmp_path, 1, "a loss is nan"))
    with pytest.raises(RunError, match=r"exit code 1: a loss is nan$"):
        rlrun.Run(tmp_path).resume()
    monkeypatch.setattr(python, "resume_run", lambda *_: Done(tmp_path, 130))
    with pytest.raises(KeyboardInterrupt):
        rlrun.Run(tmp_path).resume()


def test_run_without_rows_has_no_metrics(tmp_path: Path) -> None:
    assert rlrun.Run(tmp_path).rows == [] and len(rlrun.Run(tmp_path).metrics) == 0


@pytest.mark.parametrize("env", [3, object()])
def test_environment_of_another_type_is_refused(env: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^env: \w+ is not an environment; pass a name, a subclass"):
        rlrun.train("algo=sac", *SMALL, env=env, run_dir=str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_environment_object_that_cannot_be_copied_is_refused(tmp_path: Path) -> None:
    env = Reach()
    env.lock = threading.Lock()  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"Reach cannot be copied .*; pass its class, or a function"):
        rlrun.train("algo=sac", *REPLAY, *SMALL, env=env, run_dir=str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_training_outside_of_the_main_thread_is_refused(tmp_path: Path) -> None:
    calls = [
        lambda: rlrun.train("algo=sac", *CASES["sac"], *SMALL, run_dir=str(tmp_path / "run")),
        lambda: python.Run(tmp_path).resume(total_steps=10),
    ]
    for call in calls:
        with ThreadPoolExecutor(1) as pool, pytest.raises(ConfigError, match="training needs the main thread"):
            pool.submit(call).result()
    assert not (tmp_path / "run").exists()


def test_evaluation_equals_that_of_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = trained("dqn", tmp_path)
    capsys.readouterr()
    found = rlrun.evaluate(path, episodes=3, seed=5)
    assert main(["eval", str(path), "episodes=3", "seed=5"]) == 0
    assert found.values == json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found.return_mean == np.mean(found.returns) and len(found.lengths) == 3


def test_metrics_are_a_data_frame_if_pandas_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = rlrun.train("algo=dqn", *CASES["dqn"], *SMALL, run_dir=str(tmp_path / "run"))
    monkeypatch.setattr(python, "find_spec", lambda name: None)
    assert run.metrics == run.rows and run.rows[-1]["step"] == 60
    pandas = pytest.importorskip("pandas")
    monkeypatch.undo()
    assert isinstance(run.metrics, pandas.DataFrame)
    assert run.metrics.index[-1] == 60 and run.metrics["eval/return_mean"].iloc[-1] == run.rows[-1]["eval/return_mean"]


def test_rows_with_too_many_different_keys_are_refused_as_a_data_frame(tmp_path, monkeypatch):
    pytest.importorskip("pandas")
    (tmp_path / "metrics.jsonl").write_text("".join(f'{{"step": {i}, "k{i}": 1}}\n' for i in range(30)))
    assert rlrun.Run(tmp_path).metrics.shape == (30, 30)
    monkeypatch.setattr("rlrun.python.CELLS", 900)
    with pytest.raises(ConfigError, match=r"30 rows with 31 different keys do not fit into a data frame; read `rows`"):
        _ = rlrun.Run(tmp_path).metrics
