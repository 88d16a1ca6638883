"""How far one update of PPO moves the policy."""

import json
from pathlib import Path

import pytest

from rlrun.cli import main


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_kl_of_every_update_of_ppo_stays_bounded(seed: int, tmp_path: Path) -> None:
    """A row for every update: 49 of 100,000 steps. The largest of three seeds were 0.0077, 0.0090 and 0.0092."""
    run = tmp_path / "run"
    words = ["algo=ppo", "env=CartPole", f"seed={seed}", "trainer.log_every=2048", "logger=[]", f"run_dir={run}"]
    assert main(["train", *words]) == 0
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    kl = [row["loss/kl"] for row in rows if "loss/kl" in row]
    assert len(kl) == rows[-1]["train/updates"] == 49
    assert max(kl) <= 0.02
