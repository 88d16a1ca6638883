"""The callback `pulls` writes one line for each pull of an arm."""

import csv
from pathlib import Path
from typing import Any

import pytest

import rlrun
from rlrun.errors import RunError
from rlrun.python import Run

WORDS = ["env=BernoulliBandit", "env.kwargs.bandits=3", "env.kwargs.arms=4", "env.num_envs=2", "trainer.log_every=10",
         "trainer.eval_episodes=0", "trainer.engine=eager", "logger=[]"]  # fmt: skip


def train(folder: Path, algo: str, steps: int, *words: str) -> Run:
    return rlrun.train(f"algo={algo}", *WORDS, *words, f"trainer.total_steps={steps}", run_dir=str(folder))


def pulls(run: Run) -> list[dict[str, str]]:
    with (run.path / "pulls.csv").open(newline="") as file:
        return [*csv.DictReader(file)]


def rows(run: Run) -> list[dict[str, Any]]:
    return [{key: row[key] for key in row if not key.startswith(("time/", "sys/", "wall_s"))} for row in run.rows]


def test_pulls_have_every_arm_with_its_regret_and_probability_also_after_a_resume(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", "gradient_bandit", 60, "callbacks=[pulls]")
    half = train(tmp_path / "half", "gradient_bandit", 30, "callbacks=[pulls]")
    with (half.path / "pulls.csv").open("a") as file:
        file.write("32,0,0,0,0.0,0.0,1.0\n")  # written after the snapshot by a process that was then killed
    half.resume(total_steps=60)
    found = pulls(whole)
    assert pulls(half) == found and rows(half) == rows(whole)
    assert [int(pull["step"]) for pull in found] == [step for step in range(2, 61, 2) for _ in range(2)]
    assert [pull["env"] for pull in found] == ["0", "1"] * 30
    assert {pull["bandit"] for pull in found} == {"0", "1", "2"} and {pull["arm"] for pull in found} <= set("0123")
    assert sum(float(pull["reward"]) for pull in found) / 2 == pytest.approx(whole.rows[-1]["train/reward_total"])
    assert sum(float(pull["regret"]) for pull in found) / 2 == pytest.approx(whole.rows[-1]["train/regret_total"])
    probabilities = [float(pull["probability"]) for pull in found]
    assert probabilities[:2] == [0.25, 0.25] and len({*probabilities}) > 20
    plain = train(tmp_path / "plain", "gradient_bandit", 60)
    assert rows(plain) == rows(whole)


def test_pulls_of_agents_without_a_distribution_have_no_probability(tmp_path: Path) -> None:
    run = train(tmp_path / "run", "ucb", 4, "callbacks=[pulls]")
    assert [pull["probability"] for pull in pulls(run)] == [""] * 4


def test_pulls_that_a_resume_could_not_read_are_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"exit code 2: callbacks: pulls: trainer\.total_steps=3000000: must be below"):
        train(tmp_path / "run", "ucb", 3_000_000, "trainer.stop_at=2", "callbacks=[pulls]")


def test_pulls_of_continuous_actions_are_refused_in_one_line(tmp_path: Path) -> None:
    words = ["algo=sac", "env=Pendulum", "preset=none", "trainer.total_steps=1", "callbacks=[pulls]", "logger=[]"]
    with pytest.raises(RunError, match="exit code 2: callbacks: pulls: needs an environment with Discrete actions"):
        rlrun.train(*words, run_dir=str(tmp_path / "run"))
