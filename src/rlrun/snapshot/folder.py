"""Writes one snapshot: a copy of all state becomes a folder.

The copy shares no memory with the run, so it can be written while training continues.
"""

import json
import shutil
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from rlrun import files
from rlrun.snapshot import atomic, manifest, tensors
from rlrun.snapshot.segments import Block, Segment, Table, filename


@dataclass(frozen=True)
class RingCopy:
    """A copy of one ring buffer: full blocks are segments on disk, partial blocks are in memory."""

    table: Table
    segments: dict[int, "Future[Segment]"]  # full blocks by number; they are on disk before this copy is written
    partial: dict[Block, list[memoryview]]  # bytes of the oldest and the newest block, if these are not full


@dataclass(frozen=True)
class Copy:
    """A copy of all state of a run, to be written as one snapshot."""

    header: dict[str, Any]
    clocks: dict[str, Any]
    skeleton: bytes  # the state without its tensors, as JSON text; see `tree`
    tensors: dict[str, Tensor]  # by their place in the state
    rings: dict[str, RingCopy]

    @property
    def size(self) -> int:
        """The approximate size of the snapshot's folder in bytes, without segments that are on disk already."""
        total = len(self.skeleton)
        for tensor in self.tensors.values():
            total += tensor.nbytes
        for ring in self.rings.values():
            for parts in ring.partial.values():
                total += sum(map(len, parts))
        return total


def write_folder(copy: Copy, path: Path) -> None:
    """Writes a snapshot under a temporary name, then renames it, in place of an older snapshot of that name.

    Raises OSError if that fails; the older snapshot then stays.
    """
    temporary = path.with_name(f"{atomic.TEMPORARY}{path.name}")
    atomic.remove(temporary)
    temporary.mkdir()
    try:
        state_files = _write_state(copy, temporary)
        ring_files = {name: _write_ring(ring, temporary / name) for name, ring in copy.rings.items()}
        _write_manifest(copy, path.name, temporary, state_files, ring_files)
        atomic.replace_folder(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def link_folder(source: Path, path: Path) -> None:
    """Gives a snapshot a second name, in place of an older snapshot of that name. Links its files, which never change.

    Raises OSError if that fails; the older snapshot then stays.
    """
    temporary = path.with_name(f"{atomic.TEMPORARY}{path.name}")
    atomic.remove(temporary)
    temporary.mkdir()
    try:
        for folder in (source, *(ring for ring in source.iterdir() if ring.is_dir())):
            target = temporary / folder.relative_to(source)
            target.mkdir(exist_ok=True)
            for file in folder.iterdir():
                if file.is_file() and file.name != manifest.MANIFEST:
                    atomic.link(file, target / file.name)
            atomic.sync_folder(target)
        text = manifest.renamed(files.read(source / manifest.MANIFEST, manifest.MANIFEST_LIMIT), path.name)
        atomic.write_new(temporary / manifest.MANIFEST, [text.encode()])
        atomic.sync_folder(temporary)
        atomic.replace_folder(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _write_state(copy: Copy, folder: Path) -> dict[str, atomic.Written]:
    agent, rest = {}, {}
    for place, tensor in copy.tensors.items():
        if place.startswith("agent."):
            agent[place] = tensor
        else:
            rest[place] = tensor
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


def _write_manifest(
    copy: Copy,
    name: str,
    folder: Path,
    state_files: dict[str, atomic.Written],
    ring_files: dict[str, dict[str, atomic.Written]],
) -> None:
    all_files = dict(state_files)
    tables = {}
    hashes = {}
    for ring, written in ring_files.items():
        tables[ring] = copy.rings[ring].table
        hashes[ring] = (tables[ring], [file.sha256 for file in written.values()])
        for file_name, file in written.items():
            all_files[f"{ring}/{file_name}"] = file
    text = manifest.dump(
        name=name,
        digest=manifest.digest(json.loads(copy.skeleton), copy.tensors, hashes),
        header=copy.header,
        clocks=copy.clocks,
        rings=tables,
        files=all_files,
    )
    atomic.write_new(folder / manifest.MANIFEST, [text.encode()])
    atomic.sync_folder(folder)
