"""Small runs of callbacks, and their log rows without clocks."""

from pathlib import Path
from typing import Any

import rlrun
from rlrun.python import Run

WORDS = ["preset=none", "trainer.eval_every=0", "trainer.eval_episodes=0", "trainer.log_every=20", "logger=[]",
         "trainer.snapshot_every=0", "trainer.total_steps=80"]  # fmt: skip


def train(folder: Path, *words: str) -> Run:
    """Trains a run of 80 steps; `words` replace those of WORDS with the same key."""
    given = {word.partition("=")[0] for word in words}
    own = [word for word in WORDS if word.partition("=")[0] not in given]
    return rlrun.train(*own, *words, run_dir=str(folder))


def rows(run: Run) -> list[dict[str, Any]]:
    clocks = ("time/", "sys/", "wall_s")
    return [{key: value for key, value in row.items() if not key.startswith(clocks)} for row in run.rows]
