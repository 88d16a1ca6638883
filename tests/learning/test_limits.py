"""Rewards under limits: Lagrange multipliers end at the best that the limits leave."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from point_run import STEPS, optimum

from rlrun.cli import main

LIMIT = 0.2


def judged(run: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The last snapshot over 200 episodes."""
    last = sorted((run / "snapshots").glob("step_*"))[-1]
    assert main(["eval", str(last), "episodes=200"]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])  # type: ignore[no-any-return]


def energy_while_exploring(run: Path) -> float:
    """A step, over the last quarter of training."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    late = [row for row in rows if row["step"] > 0.75 * rows[-1]["step"] and "train/return_mean_1" in row]
    return -float(np.mean([row["train/return_mean_1"] for row in late])) / STEPS


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_sac_spends_what_it_may_and_runs_as_far_as_that_takes_it(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["algo=sac_lagrangian", "env=PointRun", f"seed={seed}", "logger.tensorboard=false"]
    assert main(["train", *words, f"run_dir={tmp_path / 'run'}"]) == 0
    spent, found = energy_while_exploring(tmp_path / "run"), judged(tmp_path / "run", capsys)
    print(f"exploring {spent:.4f}, judged {-found['return_mean_1'] / STEPS:.4f}, progress {found['return_mean_0']:.2f}")
    assert spent == pytest.approx(LIMIT, rel=0.05)
    assert -found["return_mean_1"] / STEPS == pytest.approx(LIMIT, rel=0.05)
    assert found["return_mean_0"] == pytest.approx(optimum(LIMIT)[0], rel=0.1)
