"""Hyperparameters that are changed when a run is resumed."""

from pathlib import Path
from typing import Any

import pytest

import rlrun
from rlrun.cli import main
from rlrun.config.stored import read_config

WORDS = ["algo=dqn", "env=CartPole", "preset=none", "trainer.eval_every=0", "trainer.eval_episodes=0", "logger=[]",
         "network.hidden=[8]", "trainer.log_every=50", "algo.loop.warmup_steps=20", "algo.loop.batch_size=8",
         "trainer.engine=eager"]  # fmt: skip


def rates(run: Any) -> dict[int, float]:
    return {row["step"]: pytest.approx(row["train/learning_rate"], rel=1e-6) for row in run.rows}


def test_new_learning_rate_of_a_resumed_run_holds_from_its_snapshot_on(tmp_path: Path) -> None:
    run = rlrun.train(*WORDS, "algo.learning_rate=1e-3", "trainer.total_steps=100", run_dir=str(tmp_path / "run"))
    assert main(["resume", str(run.path), "algo.learning_rate=1e-4", "total_steps=200"]) == 0
    assert main(["resume", str(run.path), "algo.learning_rate=1e-5", "total_steps=300"]) == 0
    assert rates(run) == {50: 1e-3, 100: 1e-3, 150: 1e-4, 200: 1e-4, 250: 1e-5, 300: 1e-5}
    stored = read_config(run.path / "config.yaml")["algo"]
    assert stored["learning_rate"] == 1e-3
    assert stored["schedule"] == {"learning_rate": {"piecewise": {"values": [1e-4, 1e-5], "at": [100, 200]}}}


def test_changed_run_is_the_run_that_had_this_schedule_from_its_start(tmp_path: Path) -> None:
    half = rlrun.train(*WORDS, "trainer.total_steps=100", run_dir=str(tmp_path / "half"))
    changed = half.resume("algo.learning_rate=0.05", total_steps=200)
    schedule = "algo.schedule.learning_rate={piecewise: {values: [0.05], at: [100]}}"
    whole = rlrun.train(*WORDS, schedule, "trainer.total_steps=200", run_dir=str(tmp_path / "whole"))
    assert [row.get("loss/critic") for row in changed.rows] == [row.get("loss/critic") for row in whole.rows]


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("algo.learning_rate=-1", "algo.learning_rate=-1: must be"),
        ("algo.gamma=0.5", "algo.gamma: cannot be changed in a resumed run"),
    ],
)
def test_other_changes_are_refused_in_one_line(word: str, line: str, tmp_path: Path, capsys: Any) -> None:
    run = rlrun.train(*WORDS, "trainer.total_steps=50", run_dir=str(tmp_path / "run"))
    before = (run.path / "config.yaml").read_text()
    capsys.readouterr()
    assert main(["resume", str(run.path), word, "total_steps=100"]) == 2
    error = capsys.readouterr().err
    assert line in error and error.count("\n") == 1
    assert (run.path / "config.yaml").read_text() == before
