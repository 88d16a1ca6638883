"""The manifest: what a snapshot holds, hashed, and the proof that a folder is what its manifest says.

Nothing in a snapshot is used before `verify` has passed. File names are never taken from the manifest: they follow from
its table of rings, and the manifest must list exactly those.
"""

import hashlib
import json
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pydantic
from torch import Tensor

from rlrun.config.schema import NonNegativeInt, config
from rlrun.errors import SnapshotError
from rlrun.snapshot import tensors as t
from rlrun.snapshot.segments import Table, filename

FORMAT = 1
MANIFEST, SKELETON, AGENT, REST = "manifest.json", "state.json", "agent.safetensors", "state.safetensors"
SIZE_LIMIT = 64 << 20  # bytes of a manifest
RING_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z_][A-Za-z0-9_-]*)*")  # a module path

Migration = Callable[[dict[str, Any], dict[str, Any]], tuple[dict[str, Any], dict[str, Any]]]
MIGRATIONS: dict[int, Migration] = {}
"""Format n to format n + 1: (header, state) -> (header, state). Applied in turn after a snapshot has been read."""


@config
class File:
    size: NonNegativeInt  # bytes
    sha256: str  # hex


@config
class Manifest:
    format: int
    name: str  # of the snapshot's folder
    digest: str
    header: dict[str, Any]
    clocks: dict[str, Any]
    rings: dict[str, Table]
    files: dict[str, File]
    checksum: str  # SHA-256 of this file's text without this entry


_reader = pydantic.TypeAdapter(Manifest)


def dump(**values: Any) -> str:
    """The text of a manifest: canonical JSON, so that any change of any byte shows."""
    plain = {"format": FORMAT, **values}
    plain["rings"] = {name: asdict(table) for name, table in values["rings"].items()}
    plain["files"] = {path: written._asdict() for path, written in values["files"].items()}
    return _canonical({**plain, "checksum": _checksum(plain)})


def digest(skeleton: Mapping[str, Any], tensors: Mapping[str, Tensor], rings: Mapping[str, Any]) -> str:
    """One hash over the logical state: equal digests mean bit-equal states.

    Hashed are, one JSON line each: every state name with its skeleton, sorted; every tensor's place, dtype, shape and
    SHA-256 of its bytes, sorted; every ring with capacity, total and fields, then the SHA-256 of each block of living
    rows, blocks cut at multiples of `segment_rows`. Header and clocks, files and the history of snapshots play no part.
    `rings` maps names to (Table, [SHA-256 of each block]).
    """
    hasher = hashlib.sha256()

    def add(*line: Any) -> None:
        hasher.update(json.dumps(line).encode() + b"\n")

    for name in sorted(skeleton):
        add("state", name, skeleton[name])
    for place in sorted(tensors):
        tensor = tensors[place]
        add("tensor", place, t.dtype_name(tensor), list(tensor.shape), t.sha256(tensor))
    for name in sorted(rings):
        table, hashes = rings[name]
        fields = [(field, asdict(table.fields[field])) for field in sorted(table.fields)]
        add("ring", name, table.capacity, table.total, table.segment_rows, fields)
        for (_, lo, hi), sha256 in zip(table.blocks(), hashes, strict=True):
            add("rows", lo, hi, sha256)
    return hasher.hexdigest()


def verify(folder: Path) -> tuple[Manifest, dict[str, bytearray]]:
    """The manifest of a snapshot whose every byte is as written, and the content of its files that are not segments.

    Raises SnapshotError `<snapshot>: <file>: <fault>` for the first thing that is wrong.
    """
    part = MANIFEST
    try:
        if stat.S_ISLNK(folder.lstat().st_mode):
            raise ValueError("the folder is a link")
        manifest = _read_manifest(folder)
        sizes = _sizes(folder, manifest)
        contents = {}
        for part in sorted(manifest.files):
            if sizes.get(part) != manifest.files[part].size:
                raise ValueError("missing" if part not in sizes else "size differs")
        for part in sorted(manifest.files):
            content = _hashed(folder / part, manifest.files[part].sha256, keep=part in (SKELETON, AGENT, REST))
            if content is not None:
                contents[part] = content
        return manifest, contents
    except FileNotFoundError:
        raise SnapshotError(f"{folder.name}: {part}: missing") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        text = error.strerror if isinstance(error, OSError) else str(error)
        raise SnapshotError(f"{folder.name}: {part}: {text}") from None


def _hashed(path: Path, sha256: str, keep: bool) -> bytearray | None:
    with open(path, "rb") as file:
        content = bytearray(file.read()) if keep else None
        hasher = hashlib.sha256(content) if content is not None else hashlib.file_digest(file, "sha256")
    if hasher.hexdigest() != sha256:
        raise ValueError("hash differs")
    return content


def _read_manifest(folder: Path) -> Manifest:
    info = (folder / MANIFEST).lstat()
    if not stat.S_ISREG(info.st_mode) or info.st_size > SIZE_LIMIT:
        raise ValueError("not a file of reasonable size")
    text = (folder / MANIFEST).read_bytes()
    try:
        values = json.loads(text)
        version = values["format"]
        checksum = values.pop("checksum")
        intact = checksum == _checksum(values) and _canonical({**values, "checksum": checksum}).encode() == text
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError("not a manifest") from None
    if type(version) is int and version > FORMAT:
        raise ValueError(f"format {version} is newer than this version of rlrun, which reads up to {FORMAT}")
    if not intact:
        raise ValueError("hash differs")
    try:
        manifest = _reader.validate_json(text)
    except pydantic.ValidationError as error:
        fault = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}") from None
    if manifest.name != folder.name:
        raise ValueError(f"belongs to {manifest.name!r}")
    _check_files(manifest)
    return manifest


def _check_files(manifest: Manifest) -> None:
    """The listed files are those that the rings ask for, no more, no less, of the size that their rows have."""
    expected: dict[str, int | None] = {SKELETON: None, AGENT: None, REST: None}
    if sum(table.num_blocks for table in manifest.rings.values()) + len(expected) != len(manifest.files):
        raise ValueError("files do not match rings")  # counted first: a huge ring must not be listed
    for name, table in manifest.rings.items():
        if not RING_NAME.fullmatch(name):
            raise ValueError(f"bad ring name {name!r}")
        for block in table.blocks():
            expected[f"{name}/{filename(block.number)}"] = (block.hi - block.lo) * table.row_bytes
    for path, size in expected.items():
        if path not in manifest.files or size not in (None, manifest.files[path].size):
            raise ValueError(f"files do not match rings at {path!r}")


def _sizes(folder: Path, manifest: Manifest) -> dict[str, int]:
    """Sizes of all files there are. ValueError for anything that is not a listed, regular file."""
    sizes = {}
    for place in (folder, *(folder / name for name in manifest.rings if (folder / name).exists())):
        for path in place.iterdir():
            name, info = path.relative_to(folder).as_posix(), path.lstat()
            if stat.S_ISDIR(info.st_mode) and name in manifest.rings:
                continue
            if not stat.S_ISREG(info.st_mode) or name not in {*manifest.files, MANIFEST}:
                raise ValueError(f"does not list {name!r}")
            sizes[name] = info.st_size
    return sizes


def _canonical(values: dict[str, Any]) -> str:
    return json.dumps(values, indent=1, sort_keys=True, allow_nan=False) + "\n"


def _checksum(values: dict[str, Any]) -> str:
    return hashlib.sha256(_canonical(values).encode()).hexdigest()
