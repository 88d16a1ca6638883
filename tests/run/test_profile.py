"""The callback `profile` writes a CPU profile that other programs read, and changes nothing in the run."""

import pstats
import sys
from pathlib import Path
from typing import Any

import rlrun
from rlrun.python import Run

WORDS = ["algo=ppo", "env=CartPole", "preset=none", "trainer.eval_every=0", "trainer.eval_episodes=0", "logger=[]",
         "env.num_envs=4", "algo.loop.rollout_steps=5", "trainer.log_every=20", "trainer.total_steps=60",
         "network.hidden=[8]"]  # fmt: skip


def train(folder: Path, *words: str) -> Run:
    return rlrun.train(*WORDS, *words, run_dir=str(folder))


def rows(run: Run) -> list[dict[str, Any]]:
    clocks = ("time/", "sys/", "wall_s")
    return [{key: value for key, value in row.items() if not key.startswith(clocks)} for row in run.rows]


def test_profile_has_the_functions_of_each_process_and_changes_nothing(tmp_path: Path) -> None:
    plain = train(tmp_path / "plain")
    run = train(tmp_path / "run", "callbacks=[profile]", "trainer.stop_at=40")
    assert sys.getprofile() is None, "nothing is measured after the run"
    run.resume()
    assert rows(run) == rows(plain)
    ticks = {}
    for step in (0, 40):
        stats: Any = pstats.Stats(str(run.path / "profile" / f"step_{step:09d}.prof"))
        ticks[step] = {calls[0] for (_, _, name), calls in stats.stats.items() if name == "collect_rollout"}
        lines = (run.path / "profile" / f"step_{step:09d}.txt").read_text()
        assert "Ordered by: internal time" in lines and "Ordered by: cumulative time" in lines
        assert "a2c.py" in lines
    assert ticks == {0: {2}, 40: {1}}
