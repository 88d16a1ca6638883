"""The manifest of a snapshot: what it contains, with sizes and hashes; and the verification of a folder.

Nothing in a snapshot is used before `verify` has passed. The names of files are derived from the manifest's table of
rings, and the manifest must list exactly these files. The verification depends on `check_hash`, `check_files` and
`check_folder`: the fault tests fail if one of them does not do its work.
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
from rlrun.errors import ConfigError, FormatError, SnapshotError, printable
from rlrun.formats import history
from rlrun.settings import NonNegativeInt, config
from rlrun.snapshot import tensors as t
from rlrun.snapshot.segments import SEGMENT_BYTES, Table, filename

MANIFEST, SKELETON, AGENT, REST = "manifest.json", "state.json", "agent.safetensors", "state.safetensors"
MANIFEST_LIMIT = 8 << 20  # bytes, enough for about 60,000 segments
COPIES = 2  # copies of a snapshot's tensors that are in memory while it is read
STATE_LIMIT = 16 << 20  # bytes of state.json, which does not contain arrays
NODE_LIMIT = 1 << 20  # lists, dicts and their items in a JSON file; each takes far more memory than its text
LINE_LIMIT = 200  # characters of a message
CHECKSUM_LINE = re.compile(rb' "checksum": "[0-9a-f]{64}",')
RING_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z0-9_][A-Za-z0-9_-]*)*")  # a path in the module tree


@config
class File:
    """A file of a snapshot, as its manifest lists it."""

    size: NonNegativeInt  # bytes
    sha256: str  # hex


@config
class Manifest:
    """The content of manifest.json."""

    format: int  # version of the file format
    name: str  # name of the snapshot's folder
    digest: str  # from `digest`
    header: dict[str, Any]
    clocks: dict[str, Any]
    rings: dict[str, Table]
    files: dict[str, File]
    checksum: str  # SHA-256 of the text of manifest.json without this entry

    def ring_hashes(self) -> dict[str, tuple[Table, list[str]]]:
        """Returns ring name -> (table, hashes of its segments), the argument `rings` of `digest`."""
        found = {}
        for ring, table in self.rings.items():
            hashes = []
            for block in table.blocks():
                hashes.append(self.files[f"{ring}/{filename(block.number)}"].sha256)
            found[ring] = (table, hashes)
        return found


_reader = pydantic.TypeAdapter(Manifest)


def dump(**values: Any) -> str:
    """Returns the text of a manifest as canonical JSON, so that every changed byte can be detected."""
    plain = {"format": history.FORMAT, **values}
    plain["rings"] = {name: asdict(table) for name, table in values["rings"].items()}
    plain["files"] = {path: written._asdict() for path, written in values["files"].items()}
    return _canonical({**plain, "checksum": _checksum(plain)})


def renamed(text: bytes, name: str) -> str:
    """Returns the text of a manifest for another folder with the same files. text: of one that this process wrote."""
    plain = read_json(text) | {"name": name}
    del plain["checksum"]
    return _canonical({**plain, "checksum": _checksum(plain)})


def digest(skeleton: Mapping[str, Any], tensors: Mapping[str, Tensor], rings: Mapping[str, Any]) -> str:
    """Returns a hash of the logical state: equal digests mean states that are equal bit for bit.

    It hashes lines of JSON for the following, each sorted by name:
    - every name of the state, with its skeleton;
    - every tensor: its place, dtype, shape, and the SHA-256 of its bytes;
    - every ring: capacity, total, segment_rows and fields, then the SHA-256 of each block of rows that are alive.
    Header, clocks and file names are not included. rings: name -> (Table, [SHA-256 of each block]).
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
    """Returns the value of a JSON text. Raises ValueError for duplicate keys, NaN, infinity and too many items."""
    check_nodes(content)
    text = content.decode()  # if `loads` gets bytes, it guesses their encoding
    return json.loads(text, object_pairs_hook=_object, parse_constant=_refuse, parse_float=_float)


def check_nodes(text: bytes | bytearray) -> None:
    """Raises ValueError if a JSON text would take far more memory than its length."""
    if sum(text.count(letter) for letter in (b",", b"[", b"{")) > NODE_LIMIT:
        raise ValueError(f"more than {NODE_LIMIT} items")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("duplicate key")
    return values


def _refuse(text: str) -> float:
    raise ValueError(f"{text} is not a valid number")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        _refuse("a number beyond the range of floats")
    return value


def line(error: BaseException) -> str:
    """Returns an error as one short line of printable characters, because its text may come from an untrusted file."""
    text = str(error) or type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror
    shown = printable(" ".join(text.split()))
    if len(shown) > LINE_LIMIT:
        shown = shown[: LINE_LIMIT - 3] + "..."
    return shown


def verify(folder: Path) -> tuple[Manifest, dict[str, bytes]]:
    """Verifies every byte of a snapshot. Returns its manifest, and name -> content of its files except segments.

    Raises SnapshotError `<snapshot>: <file>: <fault>` for the first fault.
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
    """Returns the content of a file, or None unless `keep`, and its SHA-256."""
    with open(files.open_descriptor(path), "rb") as file:
        if not keep:
            return None, hashlib.file_digest(file, "sha256").hexdigest()
        content = file.read()
    return content, hashlib.sha256(content).hexdigest()


def _read(folder: Path) -> Manifest:
    text = files.read(folder / MANIFEST, MANIFEST_LIMIT)
    try:
        values = read_json(text)
        checksum = values["checksum"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("not a manifest") from None
    if unreadable := history.format_fault(values.get(history.KEY)):
        raise FormatError(f"{folder.name}: {MANIFEST}: {unreadable}")
    check_hash(_text_checksum(text), checksum)
    try:
        return _reader.validate_json(text)
    except pydantic.ValidationError as error:
        fault = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}") from None


def check_hash(found: str, expected: str) -> None:
    """Raises ValueError if two hashes differ, because the file is not the one that was written."""
    if found != expected:
        raise ValueError("hash differs")


def check_files(manifest: Manifest, name: str) -> None:
    """Raises ValueError unless the manifest lists exactly the files that its rings need, each with the right size."""
    if manifest.name != name:
        raise ValueError(f"belongs to {manifest.name!r}")
    expected: dict[str, int | None] = {SKELETON: None, AGENT: None, REST: None}
    if sum(table.num_blocks for table in manifest.rings.values()) + len(expected) != len(manifest.files):
        raise ValueError("files do not match rings")  # before the loop, which would take too long for a huge ring
    for ring, table in manifest.rings.items():
        if not RING_NAME.fullmatch(ring):
            raise ValueError(f"bad ring name {ring!r}")
        row_bytes = table.row_bytes
        if table.segment_rows > 1 and table.segment_rows * row_bytes > SEGMENT_BYTES:
            raise ValueError(f"ring {ring} has segments that are too large")
        for block in table.blocks():
            expected[f"{ring}/{filename(block.number)}"] = (block.hi - block.lo) * row_bytes
    for path, size in expected.items():
        if path not in manifest.files or size not in (None, manifest.files[path].size):
            raise ValueError(f"files do not match rings at {path!r}")
    for path, limit in ((SKELETON, STATE_LIMIT), (AGENT, memory.total() // COPIES), (REST, memory.total() // COPIES)):
        if manifest.files[path].size > limit:
            raise ValueError(f"{path} has more than {limit} bytes")


def check_folder(manifest: Manifest, folder: Path) -> dict[str, int]:
    """Returns name -> size of every file in a folder. Raises ValueError if one is not listed or not a regular file."""
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
    """Returns the checksum of a manifest's text without its second line, which holds the entry `checksum`."""
    first, _, rest = text.partition(b"\n")
    entry, _, rest = rest.partition(b"\n")
    if not CHECKSUM_LINE.fullmatch(entry):
        return ""
    return hashlib.sha256(first + b"\n" + rest).hexdigest()
