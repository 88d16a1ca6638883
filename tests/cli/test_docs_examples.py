"""The example files of the documentation run."""

from pathlib import Path

import rlrun
from rlrun.testing import check_algorithm

EXAMPLE = Path(__file__).parents[2] / "docs/examples/neural_agent.py"


def test_neural_agent_of_the_documentation_fulfils_the_contract() -> None:
    check_algorithm(f"algo={EXAMPLE}", "env=LinearBandit")


def test_neural_agent_of_the_documentation_finds_the_best_arms(tmp_path: Path) -> None:
    words = [f"algo={EXAMPLE}", "env=LinearBandit", "env.num_envs=4", "trainer.eval_every=0", "trainer.log_every=400"]
    run = rlrun.train(*words, "network.hidden=[32]", "logger=[]", total_steps=2000, run_dir=str(tmp_path / "run"))
    first, *_, last = [row["train/regret"] for row in run.rows]
    assert last < 0.5 * first
