"""Writes snapshots and killed runs in the current format, which later versions must load.

Run `python tests/snapshot/make_fixtures.py` once for every new format, and commit the files; committed fixtures never
change.
"""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from stores import MemoryRing, digest, grown

from rlrun.cli import main
from rlrun.config.stored import CONFIG, OVERRIDES
from rlrun.engine.hardware_profile import cpu_name
from rlrun.formats import history
from rlrun.rundir import META, METRICS
from rlrun.snapshot import segments
from rlrun.snapshot.store import BEST, STAGING, Store
from rlrun.snapshot.tensors import DTYPES

FOLDER = Path(__file__).parent / "fixtures"
STEPS = (10, 20)  # of the two snapshots; best is that of the first
CAPACITIES = {"buffer.ring": 40, "buffer.frames.ring": 64, "empty": 8}

COMMON = [
    "preset=none", "device=cpu", "logger=[]", "trainer.snapshot_keep=1",
    "trainer.eval_every=0", "trainer.eval_episodes=1", "trainer.eval_max_steps=20",
]  # fmt: skip
TINY = ["network.hidden=[8]"]
ON_POLICY = [*TINY, "env.num_envs=2", "algo.loop.rollout_steps=16", "algo.minibatch_size=16", "algo.epochs=2"]
OFF_POLICY = [
    *TINY, "algo.loop.warmup_steps=24", "algo.loop.batch_size=8", "algo.loop.updates_per_step=0.5",
    "algo.buffer.capacity=64",
]  # fmt: skip
SMALL_SAC = ["env=Pendulum", *OFF_POLICY, "algo.actor_learning_rate=3e-3", "algo.critic_learning_rate=3e-3"]
SMALL_DQN = ["env=CartPole", *OFF_POLICY, "algo.learning_rate=3e-3", "algo.target_every=8"]
MEMORY = ["network.features=4", "network.sequence_length=4"]
# Runs of one algorithm of each family: typed words; total steps, steps between snapshots and between log rows.
FAMILIES: dict[str, tuple[list[str], tuple[int, int, int]]] = {
    "ppo": (["env=CartPole", *ON_POLICY, "algo.learning_rate=3e-3"], (320, 128, 32)),
    "ppo_lstm": (["env=CartPole", *ON_POLICY, *MEMORY, "algo.learning_rate=3e-3"], (320, 128, 32)),
    "ppo_rnd": (
        ["env=CartPole", *ON_POLICY, "algo.intrinsic.hidden=[8]", "algo.intrinsic.embedding=4"],
        (320, 128, 32),
    ),
    "sac": (SMALL_SAC, (120, 60, 8)),
    "td3": (
        [*SMALL_SAC, *(f"algo.schedule.{role}_learning_rate={{linear: {{end: 0}}}}" for role in ("actor", "critic"))],
        (120, 60, 8),
    ),
    "redq": ([*SMALL_SAC, "algo.critic.members=4", "algo.policy_delay=4"], (120, 60, 8)),
    "dqn": (SMALL_DQN, (120, 60, 8)),
    "rainbow": ([*SMALL_DQN, "algo.critic.num_atoms=11"], (120, 60, 8)),
    "recurrent_sac": ([*SMALL_SAC, *MEMORY], (120, 60, 8)),
    "cem": (["env=CartPole", "env.num_envs=4", "algo.population=8", "algo.elite_fraction=0.25"], (1200, 400, 200)),
    "svpg": (
        ["env=CartPole", *TINY, "env.num_envs=2", "algo.num_particles=2", "algo.loop.rollout_steps=16"],
        (640, 256, 64),
    ),
    "muzero": (
        ["env=CartPole", *OFF_POLICY, "env.num_envs=2", "algo.latent_size=8", "algo.support=5", "algo.unroll_steps=2",
         "algo.td_steps=2", "algo.search.num_simulations=4", "algo.target_every=8"],
        (120, 60, 8),
    ),
    "maml": (
        ["env=PointGoal", *TINY, "env.num_envs=2", "env.max_episode_steps=8", "algo.exploration_episodes=2",
         "algo.loop.episodes=2", "algo.epochs=2"],
        (640, 256, 64),
    ),
}  # fmt: skip
ROWS_LOST = 2  # that a run has written after its last snapshot when it is killed
KILLED, ALONE = "killed", "alone"  # folders of an archive: a killed run, and the end of the same run left alone
CPU = "cpu_name"  # in the killed run's meta.json: the model, beside the instructions that it has


def state(step: int) -> dict[str, Any]:
    """Returns a state with every kind of leaf that a snapshot can hold."""
    numbers = [0, -1, 2**63 - 1, 2**63, -(2**200), 0.1, -0.0, 5e-324, math.inf, -math.inf, math.nan]
    texts = ["", "a\n\x00\ud800\U0001f600", "$tensor", "a/b~c"]
    arrays = [np.zeros((0, 3), np.int16), np.arange(6.0).reshape(2, 3).T, np.array([2**64 - 1], np.uint64)]
    return {
        **{f"agent.{name}": (torch.arange(6).reshape(2, 3) + step).to(dtype) for name, dtype in DTYPES.items()},
        "agent.a/b~c": torch.zeros(0, 4),
        "agent.scalar": torch.tensor(1.5),
        "agent.noise._extra_state": torch.arange(4, dtype=torch.uint8),
        "loop._extra_state": {"numbers": numbers, "texts": texts, "arrays": arrays, "scalar": np.float64(0.1)},
        "env._extra_state": {
            "bytes": [b"", b"\x00\xff"],
            "tuple": (True, None, (1,)),
            "$tag": {"$int": 1},
            7: [[], {}],
        },
        "trainer._extra_state": OrderedDict(step=step, nested={"a/b": {"~": 1}, "": 2}),
    }


def rings(step: int) -> dict[str, MemoryRing]:
    """Returns a ring that has wrapped, one that is not full, and one that is empty."""
    rows = {"buffer.ring": 9 * step, "buffer.frames.ring": 2 * step, "empty": 0}
    return {name: grown(rows[name], capacity) for name, capacity in CAPACITIES.items()}


def make(folder: Path) -> None:
    """Writes a run with three snapshots, and `expected.json` with their digests."""
    folder.mkdir(parents=True)
    segments.SEGMENT_ROWS = 16
    store = Store(folder, keep=2)
    for step in STEPS:
        names = [f"step_{step:09d}", "best"][: 1 + (step == STEPS[0])]
        store.save(names, state(step), rings(step), {"step": step, "algo": "sac"}, {"wall_s": 1.5})
    store.close()
    shutil.rmtree(folder / "snapshots" / STAGING)
    for ring in list(folder.rglob("empty")):
        ring.rmdir()  # git keeps no empty folders
    digests = {name: digest(folder / "snapshots" / name) for name in store.names()}
    (folder / "expected.json").write_text(json.dumps(digests, indent=1) + "\n")


def make_runs(folder: Path) -> None:
    """Writes two runs of every family, one killed and one undisturbed, to one archive."""
    folder.mkdir(parents=True, exist_ok=True)
    for family, (words, (total, snapshot_every, log_every)) in FAMILIES.items():
        periods = {"total_steps": total, "snapshot_every": snapshot_every, "log_every": log_every}
        words = [f"algo={family}", *words, *COMMON, *(f"trainer.{key}={value}" for key, value in periods.items())]
        with tempfile.TemporaryDirectory() as scratch:
            for name, code in ((KILLED, -signal.SIGKILL), (ALONE, 0)):
                command = [sys.executable, __file__, name, "train", *words, f"run_dir={name}"]
                assert subprocess.run(command, cwd=scratch, check=False).returncode == code
            keep_runs(Path(scratch), folder / f"{family}.tar.xz")


def keep_runs(runs: Path, archive: Path) -> None:
    """Keeps only the files for resume and comparison, and only those facts about the machine that decide exactness."""
    meta = runs / KILLED / META
    facts = json.loads(meta.read_text()) | {CPU: cpu_name()}
    meta.write_text(json.dumps({key: facts[key] for key in facts if key not in ("host", "pid", "git", "selftest")}))
    with tarfile.open(archive, "w:xz", preset=9) as files:
        for name in (CONFIG, OVERRIDES, METRICS, META, "snapshots"):
            files.add(runs / KILLED / name, f"{KILLED}/{name}", filter=anonymous)
        for name in (METRICS, "snapshots"):
            files.add(runs / ALONE / name, f"{ALONE}/{name}", filter=anonymous)


def anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Returns an archive entry without owner and time, or None for the best snapshot, which equals the last one."""
    if Path(entry.name).name in (BEST, STAGING):
        return None
    return entry.replace(uid=0, gid=0, uname="", gname="", mtime=0, deep=False)


def kill_after_a_snapshot() -> None:
    """Makes this process kill itself when the run has written ROWS_LOST rows after its first snapshot."""
    seal, rows = Store.seal, []

    def seal_or_die(store: Store, rings: Any) -> None:
        seal(store, rings)
        if store.names():
            store.wait()
            rows.append((store.folder.parent / METRICS).read_bytes().count(b"\n"))
            if rows[-1] >= rows[0] + ROWS_LOST:
                os.kill(os.getpid(), signal.SIGKILL)

    Store.seal = seal_or_die  # type: ignore[method-assign]


if __name__ == "__main__":
    if sys.argv[1:]:  # a process of make_runs
        if sys.argv[1] == KILLED:
            kill_after_a_snapshot()
        sys.exit(main(sys.argv[2:]))
    today = FOLDER / f"format_{history.FORMAT}"
    make(today)
    make_runs(today / "runs")
