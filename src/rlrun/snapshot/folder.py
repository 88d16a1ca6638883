"""One snapshot on its way to the disk: a copy of all state, and the folder that it becomes.

A copy needs nothing from the run any more, so that the store's writer may take its time.
"""

import json
import shutil
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from rlrun.snapshot import atomic, manifest, tensors
from rlrun.snapshot.segments import Block, Segment, Table, filename


@dataclass(frozen=True)
class RingCopy:
    """A copy of one ring buffer: full blocks as segments on disk, partial ones in memory."""

    table: Table
    segments: dict[int, "Future[Segment]"]  # full blocks, by number: on disk before this copy is written
    partial: dict[Block, list[memoryview]]  # the oldest and the newest block: bytes in memory


@dataclass(frozen=True)
class Copy:
    """A copy of all state of a run, to be written as one snapshot."""

    header: dict[str, Any]
    clocks: dict[str, Any]
    skeleton: bytes
    tensors: dict[str, Tensor]
    rings: dict[str, RingCopy]

    @property
    def size(self) -> int:
        """Bytes that a folder of it takes, nearly."""
        partial = [part for ring in self.rings.values() for parts in ring.partial.values() for part in parts]
        return len(self.skeleton) + sum(t.nbytes for t in self.tensors.values()) + sum(map(len, partial))


def write_folder(copy: Copy, path: Path) -> None:
    """All of it or nothing: written aside, then renamed; a folder that was there goes. OSError where that fails."""
    aside = path.with_name(f"{atomic.TEMPORARY}{path.name}")
    atomic.remove(aside)
    aside.mkdir()
    try:
        files = _write_state(copy, aside)
        blocks = {name: _write_ring(ring, aside / name) for name, ring in copy.rings.items()}
        _write_manifest(copy, path.name, aside, files, blocks)
        atomic.replace_folder(aside, path)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def _write_state(copy: Copy, folder: Path) -> dict[str, atomic.Written]:
    agent = {place: tensor for place, tensor in copy.tensors.items() if place.startswith("agent.")}
    rest = {place: tensor for place, tensor in copy.tensors.items() if place not in agent}
    contents = {
        manifest.AGENT: tensors.dump(agent),
        manifest.REST: tensors.dump(rest),
        manifest.SKELETON: [memoryview(copy.skeleton)],
    }
    return {name: atomic.write_new(folder / name, content) for name, content in contents.items()}


def _write_ring(ring: RingCopy, folder: Path) -> dict[str, atomic.Written]:
    written = {}
    folder.mkdir()
    for block in ring.table.blocks():
        path = folder / filename(block.number)
        if block in ring.partial:
            written[path.name] = atomic.write_new(path, ring.partial[block])
        else:
            segment = ring.segments[block.number].result()
            atomic.link(segment.path, path)
            written[path.name] = segment.written
    atomic.sync_folder(folder)
    return written


def _write_manifest(copy: Copy, name: str, folder: Path, files: dict[str, Any], blocks: dict[str, Any]) -> None:
    tables = {ring: part.table for ring, part in copy.rings.items()}
    hashes = {ring: (tables[ring], [w.sha256 for w in written.values()]) for ring, written in blocks.items()}
    text = manifest.dump(
        name=name,
        digest=manifest.digest(json.loads(copy.skeleton), copy.tensors, hashes),
        header=copy.header,
        clocks=copy.clocks,
        rings=tables,
        files={**files, **{f"{ring}/{part}": w for ring, parts in blocks.items() for part, w in parts.items()}},
    )
    atomic.write_new(folder / manifest.MANIFEST, [text.encode()])
    atomic.sync_folder(folder)
