"""Small stores, on which every fault can be tried: a minimal ring, and a state of a few bytes."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlrun.snapshot import manifest, tensors
from rlrun.snapshot.loaded import Snapshot
from rlrun.snapshot.store import Store, step_name

CAPACITY = 100


@contextmanager
def quick_folder() -> Iterator[Path]:
    """Returns an empty folder, in memory if possible, which is ten times faster for tests with many files."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
        yield Path(folder)


class MemoryRing:
    def __init__(self, capacity: int, width: int = 3):
        self.capacity, self.total = capacity, 0
        self.data = {
            "obs": torch.zeros(capacity, width),
            "action": torch.zeros(capacity, dtype=torch.int64),
            "frame": torch.zeros(capacity, 2, 2, dtype=torch.uint8),
            "done": torch.zeros(capacity, dtype=torch.bool),
        }

    def extend(self, count: int) -> None:
        """Appends rows whose content is a function of their absolute number."""
        number = torch.arange(self.total, self.total + count)
        width = self.data["obs"].shape[1]
        rows = {
            "obs": (number[:, None] * 31 + torch.arange(width) * 17) % 251 / 8,  # exact on every machine
            "action": number * 7,
            "frame": (number[:, None, None] * 13 + torch.arange(4).reshape(2, 2)).to(torch.uint8),
            "done": number % 5 == 0,
        }
        self.write(self.total, rows)

    def read(self, lo: int, hi: int) -> dict[str, Tensor]:
        return {name: column[self._places(lo, hi)] for name, column in self.data.items()}

    def write(self, lo: int, rows: dict[str, Tensor]) -> None:
        hi = lo + len(rows["obs"])
        for name, column in self.data.items():
            column[self._places(lo, hi)] = rows[name]
        self.total = hi

    def _places(self, lo: int, hi: int) -> Tensor:
        return torch.arange(lo, hi) % self.capacity

    def alive(self) -> dict[str, Tensor]:
        return self.read(max(0, self.total - self.capacity), self.total)


def state(step: int = 0) -> dict[str, Any]:
    return {
        "agent.actor.weight": torch.arange(6.0).reshape(2, 3) + step,
        "agent.noise._extra_state": torch.arange(4, dtype=torch.uint8),
        "loop.step": torch.tensor(step),
        "loop._extra_state": {"first": (True, 1), "rng": {"state": 2**127 + step}, "sum": np.array([step], np.uint64)},
    }


def save(target: Store, step: int, ring: MemoryRing, name: str | None = None, clock: float = 0.0) -> Path:
    """Writes a snapshot, which is on disk when this returns."""
    name = name or step_name(step)
    target.save(name, state(step), {"replay": ring}, {"step": step}, {"wall_s": clock})
    target.wait()
    return target.folder / name


def grown(total: int, capacity: int = CAPACITY) -> MemoryRing:
    ring = MemoryRing(capacity)
    ring.extend(total)
    return ring


def restored(snapshot: Snapshot, capacity: int = CAPACITY) -> MemoryRing:
    ring = MemoryRing(capacity)
    snapshot.restore_ring("replay", ring)
    return ring


def equal(a: MemoryRing, b: MemoryRing) -> bool:
    return a.total == b.total and all(torch.equal(x, b.alive()[name]) for name, x in a.alive().items())


def digest(path: Path) -> str:
    value: str = json.loads((path / "manifest.json").read_text())["digest"]
    return value


def three(run: Path) -> Path:
    """Returns a run with three snapshots: steps 1 (40 rows) and 2 (50 rows), and best (that of step 1)."""
    target, ring = Store(run, keep=2), grown(40)
    save(target, 1, ring, name="best")
    save(target, 1, ring)
    ring.extend(10)
    save(target, 2, ring)
    target.close()
    return run


def forge(path: Path, change: Any) -> None:
    """Rewrites the manifest with a right checksum, as anyone could."""
    values = json.loads((path / "manifest.json").read_text())
    del values["checksum"]
    change(values)
    values["checksum"] = manifest._checksum(values)
    own(path / "manifest.json")
    (path / "manifest.json").write_text(manifest._canonical(values))


def replace_listed(path: Path, part: str, content: bytes) -> None:
    """Replaces a listed file, and updates the manifest."""
    own(path / part)
    (path / part).write_bytes(content)
    size, sha256 = len(content), manifest.hashlib.sha256(content).hexdigest()
    forge(path, lambda m: m["files"].update({part: {"size": size, "sha256": sha256}}))


def restate(path: Path, change: Any) -> None:
    """Replaces the small state, and updates manifest and digest."""
    skeleton = json.loads((path / "state.json").read_bytes())
    change(skeleton)
    replace_listed(path, "state.json", json.dumps(skeleton).encode())
    arrays = [tensors.load((path / f"{part}.safetensors").read_bytes()) for part in ("agent", "state")]
    value = manifest.digest(skeleton, arrays[0] | arrays[1], manifest._read(path).ring_hashes())
    forge(path, lambda m: m.update(digest=value))


def own(path: Path) -> None:
    """Gives a file a separate inode, so that damage does not affect its hard links."""
    copy = path.with_name(f"{path.name}-copy")
    shutil.copyfile(path, copy)
    copy.rename(path)


def flip(path: Path, bit: int) -> None:
    own(path)
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
