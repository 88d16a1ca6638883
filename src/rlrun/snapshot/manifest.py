"""The manifest: the content of a snapshot with its hashes, and the check of a folder against them.

Nothing in a snapshot is used before `verify` has passed. File names are never taken from the manifest: they follow from
its table of rings, and the manifest must list exactly those. `check_hash`, `check_files` and `check_folder` are the
protections themselves, and the fault tests fail where one does less.
"""

import hashlib
import json
import math
import re
import stat
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pydantic
from torch import Tensor

from rlrun import files, memory
from rlrun.config import history
from rlrun.config.schema import NonNegativeInt, config
from rlrun.errors import ConfigError, SnapshotError, printable
from rlrun.snapshot import tensors as t
from rlrun.snapshot.segments import SEGMENT_BYTES, Table, filename

MANIFEST, SKELETON, AGENT, REST = "manifest.json", "state.json", "agent.safetensors", "state.safetensors"
MANIFEST_LIMIT = 8 << 20  # bytes: some 60,000 segments
COPIES = 2  # of the tensors of a snapshot while they are read
STATE_LIMIT = 16 << 20  # bytes of small state; arrays are no part of it
NODE_LIMIT = 1 << 20  # lists, dicts and their items in a JSON file: few bytes can be many of them
LINE_LIMIT = 200  # characters of a message
CHECKSUM_LINE = re.compile(rb' "checksum": "[0-9a-f]{64}",')
RING_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z_][A-Za-z0-9_-]*)*")  # a module path


@config
class File:
    """A file of a snapshot, as its manifest lists it."""

    size: NonNegativeInt  # bytes
    sha256: str  # hex


@config
class Manifest:
    """manifest.json: everything that a snapshot holds, with sizes and hashes."""

    format: int
    name: str  # of the snapshot's folder
    digest: str
    header: dict[str, Any]
    clocks: dict[str, Any]
    rings: dict[str, Table]
    files: dict[str, File]
    checksum: str  # SHA-256 of this file's text without this entry

    def ring_hashes(self) -> dict[str, tuple[Table, list[str]]]:
        """The table and the hashes of the segments of every ring, as `digest` takes them."""
        found = {}
        for ring, table in self.rings.items():
            hashes = []
            for block in table.blocks():
                hashes.append(self.files[f"{ring}/{filename(block.number)}"].sha256)
            found[ring] = (table, hashes)
        return found


_reader = pydantic.TypeAdapter(Manifest)


def dump(**values: Any) -> str:
    """The text of a manifest: canonical JSON, so that any change of any byte shows."""
    plain = {"format": history.FORMAT, **values}
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


def read_json(content: bytes | bytearray) -> Any:
    """The value of a JSON text. Raises ValueError for what `dump` never writes: a key twice, NaN, too many items."""
    check_nodes(content)
    text = content.decode()  # given bytes, `loads` would guess at encodings, and import them
    return json.loads(text, object_pairs_hook=_object, parse_constant=_refuse, parse_float=_float)


def check_nodes(text: bytes | bytearray) -> None:
    """Raises ValueError where a JSON text would take far more memory than its length."""
    if sum(text.count(letter) for letter in (b",", b"[", b"{")) > NODE_LIMIT:
        raise ValueError(f"more than {NODE_LIMIT} items")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a key comes twice")
    return values


def _refuse(text: str) -> float:
    raise ValueError(f"{text} is no number")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        _refuse("a number beyond all floats")
    return value


def line(error: Exception) -> str:
    """An error in one short printable line; it may quote an untrusted file."""
    text = str(error) or type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror
    shown = printable(" ".join(text.split()))
    if len(shown) > LINE_LIMIT:
        shown = shown[: LINE_LIMIT - 3] + "..."
    return shown


def verify(folder: Path) -> tuple[Manifest, dict[str, bytes]]:
    """Verify every byte of a snapshot. Returns its manifest, and the content of its files that are not segments.

    Raises SnapshotError `<snapshot>: <file>: <fault>` for the first thing that is wrong.
    """
    part = MANIFEST
    try:
        if stat.S_ISLNK(folder.lstat().st_mode):
            raise ValueError("the folder is a link")
        manifest = _read(folder)
        check_files(manifest, folder.name)
        sizes = check_folder(manifest, folder)
        contents = {}
        for part in sorted(manifest.files):
            if part not in sizes:
                raise ValueError("missing")
            if sizes[part] != manifest.files[part].size:
                raise ValueError("size differs")
        for part in sorted(manifest.files):
            content, sha256 = _hashed(folder / part, keep=part in (SKELETON, AGENT, REST))
            check_hash(sha256, manifest.files[part].sha256)
            if content is not None:
                contents[part] = content
        return manifest, contents
    except FileNotFoundError:
        raise SnapshotError(f"{folder.name}: {part}: missing") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError, MemoryError, ConfigError) as error:
        raise SnapshotError(f"{folder.name}: {part}: {line(error)}") from None


def _hashed(path: Path, keep: bool) -> tuple[bytes | None, str]:
    """The content of a file, None unless `keep`, and its SHA-256."""
    with open(files.open_file(path), "rb") as file:
        if not keep:
            return None, hashlib.file_digest(file, "sha256").hexdigest()
        content = file.read()
    return content, hashlib.sha256(content).hexdigest()


def _read(folder: Path) -> Manifest:
    text = files.read(folder / MANIFEST, MANIFEST_LIMIT)
    try:
        values = read_json(text)
        version = values["format"]
        checksum = values["checksum"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("not a manifest") from None
    if type(version) is int and version < 1:
        raise ValueError(f"format {version} never was")
    if type(version) is int and version > history.FORMAT:
        raise ValueError(f"format {version} is newer than this version of rlrun, which reads up to {history.FORMAT}")
    check_hash(_text_checksum(text), checksum)
    try:
        return _reader.validate_json(text)
    except pydantic.ValidationError as error:
        fault = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}") from None


def check_hash(found: str, expected: str) -> None:
    """Raises ValueError where the bytes are not those that were written."""
    if found != expected:
        raise ValueError("hash differs")


def check_files(manifest: Manifest, name: str) -> None:
    """Raises ValueError unless the listed files are exactly those of the rings, each of the size of its rows."""
    if manifest.name != name:
        raise ValueError(f"belongs to {manifest.name!r}")
    expected: dict[str, int | None] = {SKELETON: None, AGENT: None, REST: None}
    if sum(table.num_blocks for table in manifest.rings.values()) + len(expected) != len(manifest.files):
        raise ValueError("files do not match rings")  # counted first: a huge ring must not be listed
    for ring, table in manifest.rings.items():
        if not RING_NAME.fullmatch(ring):
            raise ValueError(f"bad ring name {ring!r}")
        row_bytes = table.row_bytes
        if table.segment_rows > 1 and table.segment_rows * row_bytes > SEGMENT_BYTES:
            raise ValueError(f"ring {ring} is cut into segments that are too large")
        for block in table.blocks():
            expected[f"{ring}/{filename(block.number)}"] = (block.hi - block.lo) * row_bytes
    for path, size in expected.items():
        if path not in manifest.files or size not in (None, manifest.files[path].size):
            raise ValueError(f"files do not match rings at {path!r}")
    for path, limit in ((SKELETON, STATE_LIMIT), (AGENT, memory.total() // COPIES), (REST, memory.total() // COPIES)):
        if manifest.files[path].size > limit:
            raise ValueError(f"{path} has more than {limit} bytes")


def check_folder(manifest: Manifest, folder: Path) -> dict[str, int]:
    """The size of every file. Raises ValueError for anything that is not a listed, regular file."""
    sizes, known = {}, {*manifest.files, MANIFEST}
    for place in (folder, *(folder / name for name in manifest.rings if (folder / name).exists())):
        for path in place.iterdir():
            name, info = path.relative_to(folder).as_posix(), path.lstat()
            if stat.S_ISDIR(info.st_mode) and name in manifest.rings:
                continue
            if not stat.S_ISREG(info.st_mode) or name not in known:
                raise ValueError(f"does not list {name!r}")
            sizes[name] = info.st_size
    return sizes


def _canonical(values: dict[str, Any]) -> str:
    return json.dumps(values, indent=1, sort_keys=True, allow_nan=False) + "\n"


def _checksum(values: dict[str, Any]) -> str:
    return hashlib.sha256(_canonical(values).encode()).hexdigest()


def _text_checksum(text: bytes) -> str:
    """The checksum of a manifest from its text alone: its own entry is the first, and the second line."""
    first, _, rest = text.partition(b"\n")
    entry, _, rest = rest.partition(b"\n")
    if not CHECKSUM_LINE.fullmatch(entry):
        return ""
    return hashlib.sha256(first + b"\n" + rest).hexdigest()
