"""Whole training runs, rlrun beside its peers, timed from outside.

Every repeat runs each library twice, short and long; the steps between over the seconds between are its speed, so that
imports, warm-up and compiling fall out. rlrun runs as `rlrun train` does, with metrics, guards and snapshots on.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

from bench.cases import CASES, Case

PEERS = {
    "sb3": ["torch==2.13.0", "stable-baselines3==2.9.2", "gymnasium[mujoco]==1.4.0"],
    "sbx": ["torch==2.13.0", "sbx-rl==0.28.0", "gymnasium[mujoco]==1.4.0"],
}
ADAPTER = Path(__file__).parent / "peers" / "sb3.py"


def cache() -> Path:
    """Where the peers' environments live."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "rlrun-bench"
    return Path(os.environ.get("RLRUN_BENCH_CACHE", default))


def setup(names: list[str], where: Path) -> None:
    """One virtual environment per peer."""
    for name in names or PEERS:
        venv = where / name
        if not (venv / "bin" / "python").exists():
            subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        subprocess.run([str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", *PEERS[name]], check=True)


def command(library: str, case: Case, steps: int, where: Path, run: Path) -> list[str]:
    if library == "rlrun":
        words = [f"algo={case.algo}", f"env={case.env}", "preset=none", *case.rlrun, f"trainer.total_steps={steps}"]
        words += ["trainer.eval_every=0", "trainer.eval_episodes=1", "trainer.eval_max_steps=1", f"run_dir={run}"]
        return [sys.executable, "-m", "rlrun", "train", *words]
    return [str(where / library / "bin" / "python"), str(ADAPTER), library, str(steps), json.dumps(asdict(case))]


def wall(library: str, case: Case, steps: int, where: Path) -> float:
    with tempfile.TemporaryDirectory() as folder:
        line = command(library, case, steps, where, Path(folder) / "run")
        environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        began = time.perf_counter()
        done = subprocess.run(line, env=environment, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{library} failed: {done.stderr.strip()[-2000:]}")
        return time.perf_counter() - began


def steps_per_s(library: str, case: Case, where: Path) -> float:
    short, long = (wall(library, case, steps, where) for steps in (case.short, case.long))
    return (case.long - case.short) / max(long - short, 1e-9)


def timers(case: str, libraries: list[str], where: Path) -> dict[str, Callable[[], float]]:
    """For every library, what runs it once."""
    return {library: partial(steps_per_s, library, CASES[case], where) for library in libraries}
