"""A sweep whose processes are all killed, again and again, ends as a sweep that was not disturbed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import rlrun
from rlrun.snapshot.store import Store
from rlrun.sweep import journal

WORDS = ["sweep", "algo=q_learning", "env=FrozenLake", "algo.learning_rate=log(1e-2,1)", "trials=6", "seeds=2",
         "order=generation", "order.size=6", "rungs=[0.2,1]", "winners=1", "fresh_seeds=2", "workers=2",
         "trainer.total_steps=2000", "trainer.eval_every=400", "trainer.eval_episodes=2",
         "trainer.snapshot_every=200"]  # fmt: skip
POPULATION = ["sweep", "kind=pbt", "algo=ppo", "env=CartPole", "algo.learning_rate=log(1e-4,1e-2)", "trials=4",
              "kind.every=2048", "kind.exploit=0.5", "winners=1", "fresh_seeds=1", "workers=2",
              "trainer.total_steps=8192", "trainer.eval_every=2048", "trainer.eval_episodes=2",
              "trainer.snapshot_every=1024"]  # fmt: skip
HOME = Path("runs/sweeps")


def started(words: list[str], seed: int) -> "subprocess.Popen[bytes]":
    environment = os.environ | {"PYTHONPATH": str(Path(rlrun.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "rlrun", *words, f"seed={seed}"],
        env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def kill_all_in(folder: Path) -> None:
    """Kills every other process whose current folder this is: driver, server and runs."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if int(process.name) != os.getpid() and (process / "cwd").resolve() == folder:
                os.kill(int(process.name), signal.SIGKILL)


def table() -> tuple[list[str], dict[str, str]]:
    """Returns the decisions and results in an order that does not depend on speed, and the digests of all runs."""
    (home,) = HOME.iterdir()
    events: list[dict[str, Any]] = [*journal.read(home / "journal.jsonl")]
    digests = {}
    for run in sorted((home / "trials").glob("*-s*")):
        if run.is_dir():
            digests[run.name] = Store(run).load().digest
    for event in events:
        event.pop("at")
        event.pop("seconds", None)
    return sorted(json.dumps(event) for event in events), digests


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="finds processes in /proc")
@pytest.mark.parametrize(("words", "seed"), [*((WORDS, seed) for seed in range(10)), (POPULATION, 0), (POPULATION, 1)])
def test_killed_sweep_equals_the_undisturbed_one(
    words: list[str], seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    found = []
    for name in ("straight", "killed"):
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.chdir(folder)
        kills = 10 if name == "killed" else 0
        while True:
            driver = started(words, seed)
            if not kills:
                assert driver.wait(timeout=300) == 0
                break
            with suppress(subprocess.TimeoutExpired):
                driver.wait(timeout=rng.uniform(3.0, 9.0))
            kill_all_in(folder.resolve())
            driver.wait()
            kills -= 1
            time.sleep(0.1)
        found.append(table())
    assert found[0] == found[1]
