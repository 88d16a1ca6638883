"""Documented results of tabular and bandit agents, in full training runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from rlrun.cli import main

QUIET = ["logger=[]"]


def run(folder: Path, *words: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Trains a run. Returns its log rows and summary."""
    assert main(["train", *words, *QUIET, f"run_dir={folder}"]) == 0
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return rows, json.loads((folder / "summary.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("algo", ["q_learning", "double_q_learning"])
def test_q_learning_crosses_slippery_ice(algo: str, seed: int, tmp_path: Path) -> None:
    words = [f"algo={algo}", "env=FrozenLake", "trainer.eval_every=0", "trainer.eval_episodes=1000", f"seed={seed}"]
    assert run(tmp_path / "run", *words)[1]["final_return"] >= 0.70


@pytest.mark.slow
@pytest.mark.parametrize(("algo", "least", "most"), [("q_learning", -13, -13), ("sarsa", -19, -15)])
def test_q_learning_takes_the_edge_of_the_cliff_and_sarsa_the_safe_path(
    algo: str, least: float, most: float, tmp_path: Path
) -> None:
    assert least <= run(tmp_path / "run", f"algo={algo}", "env=CliffWalking")[1]["final_return"] <= most


@pytest.mark.slow
def test_planning_saves_real_steps(tmp_path: Path) -> None:
    """Steps until the greedy policy first takes the shortest way, 14 steps, in Sutton and Barto's maze."""
    maze = ["env=DynaMaze", "algo.gamma=0.95", "algo.epsilon.start=0.5", "algo.epsilon.end=0.5"]
    maze += ["trainer.eval_every=100", "trainer.eval_episodes=1", "trainer.eval_max_steps=100"]

    def first(name: str, steps: int, *words: str) -> int:
        rows, _ = run(tmp_path / name, *maze, *words, f"trainer.total_steps={steps}")
        return next(row["step"] for row in rows if row.get("eval/length_mean") == 14)

    plain = first("plain", 12_000, "algo=q_learning")
    assert first("dyna", 4_000, "algo=dyna_q", "algo.planning_steps=20") < plain / 2
    assert first("swept", 4_000, "algo=dyna_q", "algo.prioritized=true") < plain / 2


LINEAR = ["env=LinearBandit", "trainer.total_steps=2000", "trainer.log_every=500"]
RANDOM = 1.08 * 2000  # the regret of uniform play


@pytest.mark.slow
@pytest.mark.parametrize(
    "algo",
    ["linear_posterior", "neural_greedy", "neural_linear", "bootstrap_bandit", "variational_bandit",
     "parameter_noise_bandit"],
)  # fmt: skip
def test_contextual_agents_beat_uniform_play(algo: str, tmp_path: Path) -> None:
    rows, _ = run(tmp_path / "run", f"algo={algo}", *LINEAR)
    assert rows[-1]["train/regret_total"] < RANDOM / 5
    assert rows[-1]["train/best_arm"] > 0.85
