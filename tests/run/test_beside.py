"""Evaluations in a process beside training: `trainer.eval_beside`."""

import json
import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from gymnasium.envs.classic_control import CartPoleEnv
from toys import equal, put, toy
from toys import train as train_until

import rlrun
from rlrun.config.schema import run_config
from rlrun.core.loop import Loop
from rlrun.errors import ConfigError, RunError
from rlrun.python import Run
from rlrun.run import evaluator
from rlrun.run.assemble import build_loop
from rlrun.run.beside import TrainerBeside
from rlrun.run.evaluator import Evaluator, EvaluatorProcess
from rlrun.snapshot.store import Store

COMMON = ["preset=none", "logger=[]", "env.num_envs=2", "network.hidden=[8]", "trainer.engine=eager",
          "trainer.total_steps=160", "trainer.log_every=16", "trainer.eval_every=48", "trainer.eval_episodes=2",
          "trainer.eval_max_steps=20", "trainer.snapshot_every=64"]  # fmt: skip
PPO = ["algo=ppo", "env=CartPole", "algo.loop.rollout_steps=8", "algo.epochs=1", "env.normalize.kind=obs",
       "trainer.eval_sampled=0.5", "algo.schedule={learning_rate: {linear: {end: 0}}}"]  # fmt: skip
SAC = ["algo=sac", "env=Pendulum", "algo.loop.warmup_steps=16", "algo.loop.updates_per_step=0.1",
       "algo.loop.batch_size=8"]  # fmt: skip
BESIDE = "trainer.eval_beside=true"
Train = Callable[..., Path]
Alone = Callable[[list[str]], Path]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Alone:
    """Returns the folder of a run that evaluates itself."""

    @cache
    def trained(*words: str) -> Path:
        path = tmp_path_factory.mktemp("alone") / "run"
        rlrun.train(*COMMON, *words, run_dir=str(path))
        return path

    return lambda words: trained(*words)


@pytest.fixture
def train(tmp_path: Path) -> Train:
    """Trains a run in a new folder and returns the folder; fails if a process of the run is left."""

    def trained(*words: str, env: object = None) -> Path:
        path = tmp_path / f"run{len([*tmp_path.iterdir()])}"
        try:
            rlrun.train(*COMMON, *words, env=env, run_dir=str(path))
        finally:
            assert not multiprocessing.active_children()
        return path

    return trained


def rows(run: Path) -> list[dict[str, Any]]:
    """Returns the log rows of a run without clocks, each with the order of its keys."""
    found = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: row[key] for key in row if not key.startswith(("wall_s", "time/", "sys/"))} for row in found]


def same(one: Path, other: Path) -> bool:
    """Returns whether two runs have the same rows and the same state at their ends."""
    texts = [json.dumps(rows(run)) for run in (one, other)]
    return texts[0] == texts[1] and Store(one).load().digest == Store(other).load().digest


def summary(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "summary.json").read_text())
    return found


def agent(run: Path, snapshot: str) -> dict[str, Any]:
    state = Store(run).load(snapshot).state
    return {key: value for key, value in state.items() if key.startswith(("agent.", "addons."))}


def folder_of(trainer: TrainerBeside) -> Path:
    store: Store = trainer.checkpointer.store  # type: ignore[attr-defined]
    return store.folder.parent


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lets every evaluation take until something waits for it. Returns the step of each tick that went on meanwhile."""
    meanwhile = list[int]()

    def polled(process: EvaluatorProcess) -> bool:
        meanwhile.append(process.step)
        return False

    monkeypatch.setattr(EvaluatorProcess, "is_ready", polled)
    return meanwhile


@pytest.mark.parametrize("algo", [PPO, SAC], ids=["ppo", "sac"])
def test_rows_state_and_best_snapshot_are_those_of_a_run_that_evaluates_itself(
    algo: list[str], alone: Alone, train: Train
) -> None:
    runs = [alone(algo), train(*algo, BESIDE)]
    assert same(*runs)
    ends = [{key: summary(run)[key] for key in ("best_step", "best_return", "final_return")} for run in runs]
    assert ends[0] == ends[1] and ends[0]["best_step"] < 160, "else nothing is linked"
    assert equal(*(agent(run, "best") for run in runs))


@pytest.mark.parametrize(
    ("algo", "own"), [("dqn", {"trainer.eval_sampled": 0.5, "algo.epsilon.end_step": 8}), ("maml", {})]
)
def test_process_has_the_metrics_of_the_evaluator(algo: str, own: dict[str, Any], build: Callable[..., Loop]) -> None:
    values = toy(algo, **own, **{"trainer.eval_episodes": 4, "env.max_episode_steps": 60})
    loop = train_until(build(values), 4)
    config, device = run_config(values), torch.device("cpu")
    process = EvaluatorProcess(config, loop)
    try:
        process.begin(64)
        found = process.result()
    finally:
        process.close()
    assert found == Evaluator(config, loop.agent, loop.addons, device, masked=False).evaluate(64)


def test_rows_wait_for_the_evaluation_before_them(
    train: Train, slow: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, write = list[tuple[int, int]](), TrainerBeside.write

    def watched(trainer: TrainerBeside, row: dict[str, float]) -> None:
        write(trainer, row)
        found.append((int(row["step"]), len(rows(folder_of(trainer)))))

    monkeypatch.setattr(TrainerBeside, "write", watched)
    run = train(*PPO, BESIDE, "trainer.snapshot_every=64", "trainer.total_steps=144")
    # the snapshots of 64 and 128 wait for the evaluations of 48 and 96, which has the rows of 96 to 112 behind it
    assert found == [(16, 1), (32, 2), (48, 2), (64, 2), (80, 5), (96, 5), (112, 5), (128, 5), (144, 9)]
    assert [row["step"] for row in rows(run)] == [16, 32, 48, 64, 80, 96, 112, 128, 144]
    assert slow == [48, 96, 96], "training goes on meanwhile"


def test_rows_are_written_when_the_evaluation_is_done(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    finish, steps = TrainerBeside.finish, list[int]()

    def finished(trainer: TrainerBeside) -> None:
        if trainer.step is not None:
            steps.append(trainer.loop.steps)
        finish(trainer)

    monkeypatch.setattr(TrainerBeside, "finish", finished)
    monkeypatch.setattr(EvaluatorProcess, "is_ready", lambda process: True)
    train(*PPO, BESIDE)
    assert steps == [64, 112, 160]


@pytest.mark.parametrize("algo", [PPO, SAC], ids=["ppo", "sac"])
def test_a_run_killed_during_an_evaluation_repeats_it(
    algo: list[str], alone: Alone, train: Train, slow: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed, finish = tmp_path / "killed", TrainerBeside.finish

    def finished(trainer: TrainerBeside) -> None:
        if trainer.step == 96:  # the folder as it is now is that of a run killed now
            trainer.checkpointer.wait()
            shutil.copytree(folder_of(trainer), killed)
        finish(trainer)

    monkeypatch.setattr(TrainerBeside, "finish", finished)
    train(*algo, BESIDE)
    monkeypatch.undo()
    assert rows(killed) == rows(alone(algo))[:5] and Store(killed).latest() == "step_000000096"
    Run(killed).resume()
    assert same(killed, alone(algo))


def test_a_signal_stops_a_run_after_the_evaluation_under_way(
    alone: Alone, train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def polled(process: EvaluatorProcess) -> bool:
        signal.raise_signal(signal.SIGINT)
        return False

    monkeypatch.setattr(EvaluatorProcess, "is_ready", polled)
    with pytest.raises(KeyboardInterrupt):
        train(*PPO, BESIDE)
    monkeypatch.undo()
    path = tmp_path / "run0"
    assert rows(path) == rows(alone(PPO))[:4] and Store(path).latest() == "step_000000064"
    assert summary(path)["final_return"] == rows(path)[2]["eval/return_mean"]
    Run(path).resume()
    assert same(path, alone(PPO))


def test_a_killed_process_ends_the_run_and_a_resume_repeats_its_evaluation(
    alone: Alone, train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = EvaluatorProcess.begin

    def killed(process: EvaluatorProcess, step: int) -> None:
        if step == 96:
            os.kill(process.pipe.process.pid or 0, signal.SIGKILL)
        begin(process, step)

    monkeypatch.setattr(EvaluatorProcess, "begin", killed)
    line = r"evaluation of step 96: its worker \(pid \d+\) died, exit code -9; a resume repeats it$"
    with pytest.raises(RunError, match=line):
        train(*PPO, BESIDE)
    monkeypatch.undo()
    path = tmp_path / "run0"
    assert summary(path)["status"] == "failed" and Store(path).latest() == "step_000000096"
    Run(path).resume()
    assert same(path, alone(PPO))


def test_rows_before_a_failure_are_written(
    train: Train, slow: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(trainer: TrainerBeside) -> None:
        if trainer.loop.steps == 80:
            raise RunError("a gradient was not finite")

    monkeypatch.setattr(TrainerBeside, "check_faults", check)
    with pytest.raises(RunError, match="a gradient was not finite"):
        train(*PPO, BESIDE, "trainer.snapshot_every=0")
    assert [row["step"] for row in rows(tmp_path / "run0")] == [16, 32, 48, 64]


def test_rules_read_an_evaluation_when_the_next_is_due(alone: Alone, train: Train) -> None:
    rule = ["trainer.stop_when.at_least=1", "trainer.snapshot_every=0"]
    run = train(*PPO, BESIDE, *rule)
    assert rows(run) == rows(alone(PPO))[:6] and summary(run)["stop_reason"] == "eval/return_mean was at least 1"
    paused = train(*PPO, BESIDE, *rule, "trainer.stop_at=48")
    assert rows(paused) == rows(alone(PPO))[:3], "a pause waits for the evaluation"
    for stop in ("trainer.stop_at=80", "trainer.stop_at=null"):
        Run(paused).resume(stop)
    assert same(paused, run)


def test_rules_that_read_no_evaluation_do_not_wait_for_one(train: Train) -> None:
    run = train(*PPO, BESIDE, "trainer.stop_when.metric=train/updates", "trainer.stop_when.at_least=4")
    assert [row["step"] for row in rows(run)] == [16, 32, 48, 64]


def test_limits_and_callbacks_that_need_evaluations_are_refused(train: Train, tmp_path: Path) -> None:
    needs = "needs each evaluation before training goes on; set trainer.eval_beside=false"
    with pytest.raises(ConfigError, match=f"trainer.eval_beside=true: the callback show {needs}"):
        train(*PPO, BESIDE, "callbacks=[show]")
    assert not [*tmp_path.iterdir()]
    values = toy("sac_lagrangian", **{"trainer.eval_beside": True, "algo.reward_weights.measure": "evaluation"})
    with pytest.raises(ConfigError, match=f"trainer.eval_beside=true: the add-on LagrangianWeights {needs}"):
        build_loop(run_config(values))
    build_loop(run_config(put(values, {"algo.reward_weights.measure": "rollout"}))).env.close()


def test_an_environment_that_is_an_object_is_evaluated_beside_training(train: Train) -> None:
    class Own(CartPoleEnv):
        """An environment that another process cannot import."""

    words = [*(word for word in PPO if not word.startswith("env=")), "env.max_episode_steps=30"]
    assert same(train(*words, env=Own), train(*words, BESIDE, env=Own))


def test_a_process_that_cannot_be_started_is_refused(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluator, "serve", json.loads)  # fails in the process, as an agent would that it cannot import
    with pytest.raises(ConfigError, match=r"^trainer.eval_beside=true: its process cannot be started \(.*TypeError"):
        train(*PPO, BESIDE)
    assert not [*tmp_path.iterdir()]
