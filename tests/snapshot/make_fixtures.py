"""Snapshots of today's format, to be loaded for ever: `python tests/snapshot/make_fixtures.py`.

Run it once for every new format, and commit what it writes; a fixture that was committed never changes.
"""

import json
import math
import shutil
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from stores import MemoryRing, digest, grown

from rlrun.config import history
from rlrun.snapshot import segments
from rlrun.snapshot.store import STAGING, Store
from rlrun.snapshot.tensors import DTYPES

FOLDER = Path(__file__).parent / "fixtures"
STEPS = (10, 20)  # of the two snapshots; best is that of the first
CAPACITIES = {"buffer.ring": 40, "buffer.frames.ring": 64, "empty": 8}


def state(step: int) -> dict[str, Any]:
    """Every kind of leaf that a snapshot can hold."""
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
    """One that has wrapped, one that is not full, one that is empty."""
    rows = {"buffer.ring": 9 * step, "buffer.frames.ring": 2 * step, "empty": 0}
    return {name: grown(rows[name], capacity) for name, capacity in CAPACITIES.items()}


def make(folder: Path) -> None:
    """A run with three snapshots, and `expected.json` with their digests."""
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


if __name__ == "__main__":
    make(FOLDER / f"format_{history.FORMAT}")
