"""Rewards with limits: Lagrange multipliers converge to the constrained optimum."""

import json
from pathlib import Path

import numpy as np
import pytest
from point_run import STEPS, optimum

from rlrun.cli import main

LIMIT = 0.2


def late(run: Path, key: str) -> float:
    """Returns the mean over the log rows of the last quarter of training."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return float(np.mean([row[key] for row in rows if row["step"] > 0.75 * rows[-1]["step"] and key in row]))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("algo", "noise"), [("sac_lagrangian", 0.0), ("ppo_lagrangian", 0.05)])
def test_an_agent_spends_what_it_may_and_runs_as_far_as_that_takes_it(
    algo: str, noise: float, seed: int, tmp_path: Path
) -> None:
    """Limits hold on average; policies during training may spend up to a tenth more or less energy.

    noise: the fraction of the energy that exploration noise needs and evaluations do not."""
    run = tmp_path / "run"
    words = [f"algo={algo}", "env=PointRun", f"seed={seed}", "logger=[console]", f"run_dir={run}"]
    assert main(["train", *words]) == 0
    exploring, judged = (-late(run, f"{group}/return_mean_1") / STEPS for group in ("train", "eval"))
    progress, multiplier = late(run, "eval/return_mean_0"), late(run, "loss/reward_weight_1")
    multiplier /= late(run, "loss/reward_weight_0")
    most, fair = optimum(LIMIT)
    print(f"energy {exploring:.4f} exploring, {judged:.4f} judged; progress {progress:.2f} of {most:.2f}")
    print(f"multiplier {multiplier:.2f}, at the optimum {fair:.2f}")
    assert exploring == pytest.approx(LIMIT, rel=0.05)
    assert (0.95 - noise) * LIMIT <= judged <= 1.05 * LIMIT
    assert progress == pytest.approx(most, rel=0.1)
