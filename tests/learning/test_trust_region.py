"""A trust region keeps a policy from being lost to steps that are far too large."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from rlrun.cli import main

LIMIT = math.sqrt(0.01 * 2)  # of the two choices of CartPole
STEPS = 128  # of an update


def rows(words: list[str], seed: int, run: Path) -> list[dict[str, Any]]:
    """Returns the log rows of a run with 100 times the default learning rate; every update has a row."""
    rate = ["env=CartPole", "algo.learning_rate=0.1", "trainer.total_steps=100000", f"trainer.log_every={STEPS}"]
    assert main(["train", *words, *rate, f"seed={seed}", "logger=[console]", f"run_dir={run}"]) == 0
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def column(given: list[dict[str, Any]], key: str) -> list[float]:
    return [row[key] for row in given if key in row]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_trac_learns_with_a_learning_rate_that_a2c_does_not_survive(seed: int, tmp_path: Path) -> None:
    trac = rows(["algo=trac"], seed, tmp_path / "trac")
    a2c = rows(["algo=a2c", "algo.advantage.gae_lambda=0.95"], seed, tmp_path / "a2c")
    distances, returns = column(trac, "loss/policy_distance"), column(trac, "eval/return_mean")
    print(f"distance {max(distances):.6f}, {max(column(trac, 'loss/policy_distance_before')):.1f} before the pulls")
    print(f"returns {returns}, A2C {column(a2c, 'eval/return_mean')}")
    assert len(distances) == math.ceil(100_000 / STEPS) and max(distances) <= LIMIT
    assert returns[-1] >= 100 and max(returns) >= 150
    assert column(a2c, "eval/return_mean")[-1] <= 20
