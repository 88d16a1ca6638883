"""Runs that are killed, interrupted and resumed by commands, compared with an undisturbed run."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from rows.processes import Child

import rlrun
from rlrun.cli import main
from rlrun.snapshot.store import Store

Rows = list[dict[str, Any]]

COMMON = ["preset=none", "logger=[console]", "trainer.eval_episodes=2", "trainer.snapshot_keep=1"]


def words(total: int, *own: str, eval_max_steps: int = 100) -> list[str]:
    # different periods, so that snapshots fall between rows
    periods = {"total_steps": total, "log_every": total // 19, "eval_every": total // 4, "snapshot_every": total // 7}
    limits = periods | {"eval_max_steps": eval_max_steps}
    return [*own, *COMMON, *(f"trainer.{key}={value}" for key, value in limits.items())]


OFF_POLICY = ["algo.loop.warmup_steps=200", "algo.loop.batch_size=16", "network.hidden=[16]"]
QUICK = {
    "ppo": words(4000, "algo=ppo", "env=CartPole", "algo.epochs=4", "algo.loop.rollout_steps=16"),
    "sac": words(1200, "algo=sac", "env=InvertedPendulum", *OFF_POLICY, "algo.loop.updates_per_step=0.25"),
}
SLOW = {
    "dqn": words(10000, "algo=dqn", "env=CartPole", *OFF_POLICY, "algo.buffer.capacity=3000"),
    "ppo-native": words(
        8000, "algo=ppo", "env=CartPole", "env.backend=native", "algo.epochs=4", "algo.loop.rollout_steps=16"
    ),
    "cem": words(60000, "algo=cem", "env=CartPole"),
    "ppo-normalised": words(20000, "algo=ppo", "env=HalfCheetah", "env.normalize=both", "env.num_envs=2"),
    "sac-workers": words(4000, "algo=sac", "env=Hopper", *OFF_POLICY, "env.backend=async", "env.num_envs=2"),
    "sac-lag": words(
        2000, "algo=sac", "env=Hopper", *OFF_POLICY, "env.backend=async", "env.num_envs=2", "algo.loop.lag=1"
    ),
}
RUNS = QUICK | SLOW


class Process:
    """One `rlrun` command in a new process."""

    def __init__(self, *command: str):
        home = str(Path(rlrun.__file__).parents[1])
        environment = os.environ | {"PYTHONPATH": home, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rlrun", *command],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def finish(self) -> tuple[int, str]:
        """Returns exit code and all output."""
        output, _ = self.process.communicate(timeout=120)
        return self.process.returncode, output

    def signal_when(self, number: signal.Signals, ready: Callable[[], bool]) -> tuple[int, str]:
        """Sends a signal as soon as `ready` is true; the process must not end before."""
        while not ready():
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(0.01)
                raise AssertionError(f"it ended too early:\n{self.process.communicate()[0]}")
        self.process.send_signal(number)
        return self.finish()


class Fork:
    """One `rlrun` command in a fork of this process, which has imported torch. Its output goes to a file in a folder.

    It cannot show that a command answers signals as it starts Python, so those of one run that receive signals do.
    """

    def __init__(self, folder: Path, *command: str):
        self.child = Child(command, folder / f"{time.monotonic_ns()}.log")

    def finish(self) -> tuple[int, str]:
        """Returns exit code and all output."""
        return self.child.finish(), self.child.said()

    def signal_when(self, number: signal.Signals, ready: Callable[[], bool]) -> tuple[int, str]:
        """As that of `Process`."""
        while not ready():
            assert self.child.wait(0.01) is None, f"it ended too early:\n{self.child.said()}"
        self.child.send(number)
        return self.finish()


def rows(run: Path) -> Rows:
    """Returns complete rows of metrics without times."""
    path = run / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    found = [json.loads(line) for line in lines if line.endswith("\n")]
    return [
        {key: row[key] for key in row if key != "wall_s" and not key.startswith(("time/", "sys/"))} for row in found
    ]


def snapshot(run: Path) -> dict[str, Any]:
    latest = (run / "snapshots" / "LATEST").read_text().strip()
    manifest: dict[str, Any] = json.loads((run / "snapshots" / latest / "manifest.json").read_text())
    return manifest


def summary(run: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((run / "summary.json").read_text())
    return values


def a_new_row(run: Path) -> Callable[[], bool]:
    """Returns a function: whether a row with a later step than all present rows has been written."""
    last = rows(run)[-1]["step"]
    return lambda: rows(run)[-1:] > [] and rows(run)[-1]["step"] > last


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_resume_after_kill_and_signals_equals_the_uninterrupted_run(name: str, tmp_path: Path) -> None:
    fork = partial(Fork, tmp_path)
    alone, disturbed = tmp_path / "alone", tmp_path / "disturbed"
    undisturbed = fork("train", *RUNS[name], f"run_dir={alone}")

    killed = fork("train", *RUNS[name], f"run_dir={disturbed}")
    code, _ = killed.signal_when(signal.SIGKILL, (disturbed / "snapshots" / "LATEST").exists)
    assert code == -signal.SIGKILL
    assert not (disturbed / "summary.json").exists()

    for number, expected in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        resume: Callable[..., Process | Fork] = Process if (name, number) == ("ppo", signal.SIGTERM) else fork
        process = resume("resume", str(disturbed))
        code, output = process.signal_when(number, a_new_row(disturbed))
        assert code == expected, output
        assert "Traceback" not in output
        stopped = summary(disturbed)
        assert stopped["status"] == "stopped"
        assert snapshot(disturbed)["header"]["step"] == stopped["step"]

    code, output = fork("resume", str(disturbed)).finish()
    assert code == 0 and ", exact" in output, output
    code, output = undisturbed.finish()
    assert code == 0, output
    assert rows(disturbed) == rows(alone)
    assert snapshot(disturbed)["digest"] == snapshot(alone)["digest"]
    assert summary(disturbed)["status"] == summary(alone)["status"] == "done"
    for key in ("step", "total_steps", "final_return", "best_return", "best_step"):
        assert summary(disturbed)[key] == summary(alone)[key]


FAULTS = {
    "nan_obs": "observation[0] is nan",
    "nan_reward": "reward is nan",
    "raise": "ValueError: this environment raises on purpose",
}


@pytest.mark.parametrize("backend", ["sync", "async"])
@pytest.mark.parametrize("kind", FAULTS)
def test_a_faulty_environment_is_named_and_the_last_snapshot_kept(
    kind: str, backend: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    own = ["env.num_envs=2", f"env.backend={backend}", f"env.kwargs.kind={kind}", "env.kwargs.at=70"]
    small = ["network.hidden=[8]", "algo.loop.rollout_steps=10"]
    settings = words(200, "algo=ppo", "env=rlrun/Faulty-v0", *own, *small, eval_max_steps=10)
    code = main(["train", *settings, f"run_dir={run}"])
    error = capsys.readouterr().err
    assert code == 1
    assert re.search(rf"env rlrun/Faulty-v0 #[01], seed \d+, step 70: {re.escape(FAULTS[kind])}", error)
    assert "Traceback" not in error and "Traceback" in (run / "error.log").read_text()
    assert summary(run)["status"] == "failed"
    kept = Store(run).load()
    assert kept.header["step"] == 120 and not kept.faults


def test_restarted_environment_is_reported_and_training_continues(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = ["env.num_envs=2", "env.on_failure=restart", "env.kwargs.kind=raise", "env.kwargs.at=70"]
    small = ["network.hidden=[8]", "algo.loop.rollout_steps=10"]
    settings = words(200, "algo=ppo", "env=rlrun/Faulty-v0", *own, *small, eval_max_steps=10)
    assert main(["train", *settings, f"run_dir={tmp_path / 'run'}"]) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert output.count("this environment raises on purpose; restarted with seed") == 2


@pytest.mark.parametrize(
    ("algo", "blamed", "rate"),
    [
        ("ppo", "agent.optim", "algo.learning_rate"),
        ("ppo_critic_first", "agent.critic.optim", "algo.critic_update.learning_rate"),
        ("sac", "agent.critic_optim", "algo.critic_learning_rate"),
        ("sac", "agent.actor_optim", "algo.actor_learning_rate"),
    ],
)
def test_weights_that_diverge_are_named_with_their_learning_rate(
    algo: str, blamed: str, rate: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    own = [
        "algo=sac",
        "env=Pendulum",
        "algo.loop.warmup_steps=40",
        "algo.loop.batch_size=8",
        "algo.buffer.capacity=800",
    ]
    if algo != "sac":
        own = [f"algo={algo}", "env=CartPole", "algo.loop.rollout_steps=10"]
    code = main(["train", *words(800, *own, "network.hidden=[8]", f"{rate}=1e30"), f"run_dir={run}"])
    lines = capsys.readouterr().err.splitlines()
    assert code == 1
    (advice,) = (line for line in lines if "the largest weights" in line)
    assert advice.startswith(f"  the largest weights, of {blamed}, have the norm ")
    assert advice.endswith(f"e+31; try a lower {rate}; see docs/not_learning.md") or "e+30; try" in advice
    assert lines[-2:] == [f"  facts: {run}/postmortem/facts.json", f"  trace: {run}/error.log"]


def test_fault_of_an_environment_says_nothing_about_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = ["algo=ppo", "env=rlrun/Faulty-v0", "env.kwargs={kind: nan_reward, at: 3}", "algo.loop.rollout_steps=10"]
    assert main(["train", *words(80, *own, "network.hidden=[8]"), f"run_dir={tmp_path / 'run'}"]) == 1
    assert "weights" not in capsys.readouterr().err


def test_non_finite_loss_stops_the_run_before_a_snapshot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    own = ["env.max_episode_steps=20", "network.hidden=[8]", "algo.loop.rollout_steps=10"]
    code = main(["train", *words(800, "algo=ppo", "env=CartPole", *own, "algo.learning_rate=1e38"), f"run_dir={run}"])
    error = capsys.readouterr().err
    assert code == 1 and "optim: " in error and "not finite" in error
    assert json.loads((run / "postmortem" / "facts.json").read_text())["optimisers"]["agent.optim"]["steps"] > 0
    assert summary(run)["status"] == "failed"
    for name in Store(run).names():
        values = Store(run).load(name).state.values()
        assert all(
            torch.isfinite(value).all()
            for value in values
            if isinstance(value, torch.Tensor) and value.is_floating_point()
        )
    assert not any(value != value for row in rows(run) for value in row.values())
