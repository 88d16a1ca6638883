"""Malformed snapshots: some like those after accidents, most forged with right checksums.

`CLASSES` maps a class to its variations; each changes the folder of a valid snapshot (of `stores.three`). All are drawn
from one seed. `cases` yields (name, change) of every variation.
"""

import json
import math
import os
import pickle
import random
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from stores import flip, forge, own, replace_listed, restate

from rlrun import memory
from rlrun.formats.history import FORMAT
from rlrun.snapshot import manifest, tensors

Change = Callable[[Path], object]

MANIFEST, STATE, AGENT, REST = "manifest.json", "state.json", "agent.safetensors", "state.safetensors"
SEGMENT = "replay/segment_000001.bin"
PARTS = (MANIFEST, STATE, AGENT, REST, "replay/segment_000000.bin", SEGMENT, "replay/segment_000003.bin")
OWN = b'"format": %d' % FORMAT  # in the form of a manifest
KEYS = ("format", "name", "digest", "header", "clocks", "rings", "files", "checksum")


class Bomb:
    """An object that runs code if it is unpickled."""

    def __reduce__(self) -> Any:
        return os.system, ("touch /tmp/rlrun-was-here",)


def cases(seed: int = 0) -> Iterator[tuple[str, Change]]:
    rng = random.Random(seed)
    for name, make in CLASSES.items():
        for index, change in enumerate(make(rng)):
            yield f"{name}-{index}", change


# --- accidents -------------------------------------------------------------------------------------------------------


def flipped(rng: random.Random) -> Iterator[Change]:
    for part in PARTS:
        for at in (rng.random() for _ in range(3)):
            yield lambda path, part=part, at=at: flip(path / part, int(at * 8 * (path / part).stat().st_size))


def cut(rng: random.Random) -> Iterator[Change]:
    for part in PARTS:
        for at in (0.0, rng.random(), rng.random()):
            yield lambda path, part=part, at=at: resize(path / part, int(at * (path / part).stat().st_size))


def longer(rng: random.Random) -> Iterator[Change]:
    for part, more in ((part, rng.randbytes(9)) for part in PARTS):
        yield lambda path, part=part, more=more: write(path / part, (path / part).read_bytes() + more)


def blank(rng: random.Random) -> Iterator[Change]:
    for part in PARTS:
        yield lambda path, part=part: write(path / part, bytes((path / part).stat().st_size))


def missing(rng: random.Random) -> Iterator[Change]:
    for part in PARTS:
        yield lambda path, part=part: (path / part).unlink()


def swapped(rng: random.Random) -> Iterator[Change]:
    for two in (rng.sample(PARTS, 2) for _ in range(8)):
        yield lambda path, two=two: swap(*(path / part for part in two))


def foreign(rng: random.Random) -> Iterator[Change]:
    for part in (MANIFEST, STATE, AGENT, REST, "replay/segment_000003.bin"):
        for other in ("best", "step_000000001"):
            yield lambda path, part=part, other=other: write(
                path / part, (path.parent / other / part.replace("3.bin", "0.bin")).read_bytes()
            )


# --- files that are none ---------------------------------------------------------------------------------------------


def links(rng: random.Random) -> Iterator[Change]:
    for part in (*PARTS, "replay", "."):
        yield lambda path, part=part: relink(path / part, inside=True)
    for part in PARTS:
        yield lambda path, part=part: relink(path / part, inside=False)


def pipes(rng: random.Random) -> Iterator[Change]:
    for part in PARTS:
        yield lambda path, part=part: [(path / part).unlink(), os.mkfifo(path / part)]


def folders(rng: random.Random) -> Iterator[Change]:
    for part in PARTS:
        yield lambda path, part=part: [(path / part).unlink(), (path / part).mkdir()]
    yield lambda path: [part.unlink() for part in (path / "replay").iterdir()] and (path / "replay").rmdir()


def strange(rng: random.Random) -> Iterator[Change]:
    names = (
        "code.py",
        "agent.pt",
        "__init__.py",
        "replay/segment_000009.bin",
        "replay/x.pkl",
        ".hidden",
        "LATEST",
        "a\nb",
    )
    for name in names:
        yield lambda path, name=name: write(path / name, pickle.dumps(Bomb()))
    yield lambda path: (path / "rollout").mkdir()
    yield lambda path: (path / "replay/deeper").mkdir()


# --- manifests -------------------------------------------------------------------------------------------------------

WRONG: tuple[Any, ...] = (None, True, -1, 1.5, "x", [], {}, [[]], {"a": 1}, 10**30, "gASV", ["__import__"], "\x1b[2J\n")


def without_a_key(rng: random.Random) -> Iterator[Change]:
    for key in KEYS[:-1]:
        yield lambda path, key=key: forge(path, lambda m: m.pop(key))
    yield lambda path: write(path / MANIFEST, b"\n".join((path / MANIFEST).read_bytes().split(b"\n")[2:]))
    for key in ("total", "capacity", "segment_rows", "fields"):
        yield lambda path, key=key: forge(path, lambda m: m["rings"]["replay"].pop(key))
    for key in ("size", "sha256"):
        yield lambda path, key=key: forge(path, lambda m: m["files"][STATE].pop(key))


def of_a_wrong_type(rng: random.Random) -> Iterator[Change]:
    for key in KEYS[:-1]:
        for value in rng.sample(WRONG, 7):
            if (key, value) not in (("header", {}), ("clocks", {}), ("header", {"a": 1}), ("clocks", {"a": 1})):
                yield lambda path, key=key, value=value: forge(path, lambda m: m.update({key: value}))
    for key in ("total", "capacity", "segment_rows", "fields"):
        for value in rng.sample(WRONG, 5):
            yield lambda path, key=key, value=value: forge(path, lambda m: m["rings"]["replay"].update({key: value}))
    for key in ("size", "sha256"):
        for value in rng.sample(WRONG, 5):
            yield lambda path, key=key, value=value: forge(path, lambda m: m["files"][STATE].update({key: value}))


def with_more_keys(rng: random.Random) -> Iterator[Change]:
    for key in ("_target_", "code", "a\nb", "\x1b[31m", "__class__", "x" * 100_000):
        yield lambda path, key=key: forge(path, lambda m: m.update({key: "os.system"}))
        yield lambda path, key=key: forge(path, lambda m: m["rings"]["replay"].update({key: 1}))


def of_another_format(rng: random.Random) -> Iterator[Change]:
    for value in (0, -1, FORMAT + 1, 99, 10**18, 10**4000, "1", 1.0, True):
        yield lambda path, value=value: forge(path, lambda m: m.update(format=value))


def of_another_name(rng: random.Random) -> Iterator[Change]:
    for value in ("best", "step_000000001", "", "../step_000000002", "step_000000002/", "STEP_000000002", "LATEST"):
        yield lambda path, value=value: forge(path, lambda m: m.update(name=value))


PATHS = (
    "../x",
    "/etc",
    "a/b",
    "..",
    ".",
    "",
    "a\0b",
    "a\nb",
    "~",
    "$HOME",
    "é",
    "x" * 5000,
    "replay/../../best",
    "C:\\x",
    "-",
)


def with_paths_outside(rng: random.Random) -> Iterator[Change]:
    for path_ in PATHS:
        yield lambda path, name=path_: forge(path, lambda m: m["rings"].update({name: m["rings"].pop("replay")}))
        yield lambda path, name=path_: forge(path, lambda m: m["files"].update({name: m["files"].pop(STATE)}))
    for name in ("/etc/passwd", "../LATEST", f"{SEGMENT}/../../{STATE}"):
        yield lambda path, name=name: forge(path, lambda m: m["files"].update({name: m["files"][STATE]}))


def with_absurd_rings(rng: random.Random) -> Iterator[Change]:
    def ring(**values: Any) -> Change:
        return lambda path: forge(path, lambda m: m["rings"]["replay"].update(values))

    huge = (2**31, 2**53, 10**18, 2**62 - 1, 2**63, 10**30, 10**4000)
    yield from (ring(total=value, capacity=value) for value in huge)
    yield from (ring(total=value) for value in (0, 1, 51, 10**6))
    yield from (ring(capacity=value) for value in (0, 1, 49, -5))
    yield from (ring(segment_rows=value) for value in (0, 1, 2, 17, 10**9, -16))
    yield ring(fields={})
    yield lambda path: forge(path, lambda m: m["rings"].clear())
    yield lambda path: forge(path, lambda m: m["rings"].update(other=m["rings"]["replay"]))
    yield lambda path: forge(path, lambda m: m["rings"].update({f"r{i}": m["rings"]["replay"] for i in range(3_000)}))


def with_absurd_fields(rng: random.Random) -> Iterator[Change]:
    def obs(**values: Any) -> Change:
        return lambda path: forge(path, lambda m: m["rings"]["replay"]["fields"]["obs"].update(values))

    shapes: list[Any] = [
        [],
        [4],
        [10**12],
        [2**61],
        [2**61] * 64,
        [10**4000] * 500,
        [2] * 10_000,
        [-3],
        [1.5],
        [[3]],
        "3",
        None,
    ]
    yield from (obs(shape=shape) for shape in shapes)
    dtypes = (
        "object",
        "float64",
        "int64",
        "O",
        "f4",
        "complex64",
        "torch.float32",
        "float32 ",
        "__import__('os')",
        "",
        "V12",
    )
    yield from (obs(dtype=dtype) for dtype in dtypes)
    yield lambda path: forge(path, lambda m: m["rings"]["replay"]["fields"].pop("obs"))


def with_wrong_hashes(rng: random.Random) -> Iterator[Change]:
    for part in PARTS[1:]:
        yield lambda path, part=part: forge(path, lambda m: m["files"][part].update(sha256="0" * 64))
        yield lambda path, part=part: forge(path, lambda m: m["files"][part].update(size=m["files"][part]["size"] + 1))
        yield lambda path, part=part: forge(path, lambda m: m["files"][part].update(size=10**15))
    for value in ("0" * 64, "", "x" * 64, "é" * 64):
        yield lambda path, value=value: forge(path, lambda m: m.update(digest=value))


def not_json(rng: random.Random) -> Iterator[Change]:
    for part in (MANIFEST, STATE):
        for text in TEXTS:
            yield lambda path, part=part, text=text: replace(path, part, text)


TEXTS: tuple[bytes, ...] = (
    b"", b"{", b"[]", b"null", b"1", b'"x"', b"{}{}", b"\xff\xfe{\0}\0", b"\xef\xbb\xbf{}", b"\xed\xa0\x80",
    b"[" * 100_000, b'{"a":' * 100_000, b"[" * 100_000 + b"]" * 100_000, b"9" * 100_000, b"-", b"{,}", b"\0" * 999,
    b'{"a": NaN}', b'{"a": Infinity}', b'{"a": 1e999}', b'{"a": 1, "a": 2}', b'{"a": 0x10}', b"{'a': 1}",
    b"!!python/object:os.system", b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n",
    b"#!/bin/sh\ntouch /tmp/rlrun-was-here\n", pickle.dumps(Bomb()),
    b'{"__reduce__": ["os.system", "true"]}', b'{"_target_": "os.system"}', b'{"a": {"$tensor": "a"}}',
)  # fmt: skip


def with_text_tricks(rng: random.Random) -> Iterator[Change]:
    deep = b"[" * 5000 + b"]" * 5000
    for old, new in (
        (b'"clocks"', b'"digest": "x", "clocks"'), (OWN, OWN + b', "format": 1'),
        (OWN, b'"format": NaN'), (OWN, b'"format": 2e400'), (b'"step": 2', b'"step": -Infinity'),
        (b'"rings": {', b'"rings": {"replay": {}, '), (b'"size": ', b'"size": 0'), (b"{", b"["),
        (b'"step"', b'"st\xc3ep"'), (OWN, b'"format": ' + b"1" * 5000),
        (b'"header": {', b'"header": {"a": ' + deep + b", "),
    ):  # fmt: skip
        yield lambda path, old=old, new=new: retext(path, old, new)
    yield lambda path: retext(path, b'"clocks"', b" " * manifest.MANIFEST_LIMIT + b'"clocks"')
    yield lambda path: retext(path, b'"header": {', b'"header": {"a": [' + b"{}," * 2_000_000 + b"{}], ")


# --- small state -----------------------------------------------------------------------------------------------------


def with_wrong_tags(rng: random.Random) -> Iterator[Change]:
    values: dict[str, tuple[Any, ...]] = {
        "$int": ("0xg", 5, None, [], {}, "", "1e5", "--1"),
        "$float": ("zz", "00", [], 1.0, None, "7ff0000000000000ff"),
        "$tuple": ({}, "ab", 3, None, {"$int": "1"}),
        "$dict": ([[1]], [[[], 1]], 5, "ab", [["a", 1, 2]], {}, [[{"a": 1}, 1]]),
        "$tensor": ("nowhere", 5, None, [], {}, "agent.actor.weight"),
        "$array": ("nowhere", ["loop.step"]),
        "$bytes": ("nowhere", {"$bytes": "loop.step"}),
        "$scalar": ("nowhere", ""),
        "$pickle": ("gASVAAAA",),
        "$object": ("os.system",),
        "$": (1,),
    }
    for tag, wrong in values.items():
        for value in wrong:
            yield lambda path, tag=tag, value=value: restate(path, lambda s: s.update(x={tag: value}))
    yield lambda path: restate(path, lambda s: s.update(x={"$int": "0x1", "y": 2}))
    yield lambda path: restate(path, lambda s: s.update(x={"y": 2, "$int": "0x1"}))


def with_alias_bombs(rng: random.Random) -> Iterator[Change]:
    for tag in ("$tensor", "$bytes", "$array", "$scalar"):
        for times in (2, 200_000):
            bomb = [{tag: "loop.step"}] * times
            yield lambda path, bomb=bomb: restate(path, lambda s: s.update(x=bomb))
    yield lambda path: restate(path, lambda s: s.pop("loop.step"))
    yield lambda path: restate(path, lambda s: s.update({"loop.step": 5}))


def with_much_state(rng: random.Random) -> Iterator[Change]:
    """A state that is refused only because of its size."""
    yield lambda path: replace_listed(path, STATE, b"[" + b"0," * (manifest.STATE_LIMIT // 2 - 99) + b"0]")
    yield lambda path: replace_listed(path, STATE, b'{"a": [' + b"[]," * (manifest.STATE_LIMIT // 3 - 99) + b"[]]}")
    yield lambda path: restate(path, lambda s: s.update(x=" " * manifest.STATE_LIMIT))
    for part in (STATE, AGENT, REST):
        yield partial(sparse, part=part, size=2 * memory.total())


def with_numbers_that_are_none(rng: random.Random) -> Iterator[Change]:
    for value in (math.nan, math.inf, -math.inf):
        yield lambda path, value=value: restate(path, lambda s: s.update(x=[value]))
    yield beyond_floats
    yield lambda path: restate(path, lambda s: s.update(x={"$int": "0x" + "f" * (manifest.STATE_LIMIT // 2), "b": 1}))


# --- tensors ---------------------------------------------------------------------------------------------------------


def not_safetensors(rng: random.Random) -> Iterator[Change]:
    torch_file = Path(f"/tmp/rlrun-malformed-{os.getpid()}.pt")
    torch.save({"a": torch.zeros(2)}, torch_file)
    pt = torch_file.read_bytes()
    torch_file.unlink()
    for content in (
        b"", b"\0", b"\0" * 8, b"\xff" * 64, pickle.dumps(Bomb()), pt, b"\x93NUMPY\x01\0" + bytes(99), b"GGUF\0\0\0\0",
        struct.pack("<Q", 2**63) + b"{}", struct.pack("<Q", 10**9) + b"{}", struct.pack("<Q", 3) + b"{}",
        struct.pack("<Q", tensors.HEADER_LIMIT + 1) + bytes(tensors.HEADER_LIMIT + 1),
    ):  # fmt: skip
        yield lambda path, content=content: replace_listed(path, AGENT, content)


def with_wrong_headers(rng: random.Random) -> Iterator[Change]:
    good = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
    for change in (
        {"dtype": "O"}, {"dtype": "F31"}, {"dtype": 5}, {"dtype": "C64"}, {"dtype": "F8_E4M3"}, {"shape": [2, 4]},
        {"shape": [2**40, 2**40]},
        {"shape": [-2, -3]}, {"shape": "23"}, {"shape": None}, {"shape": [2, 3, 0]}, {"data_offsets": [0, 23]},
        {"data_offsets": [24, 0]}, {"data_offsets": [8, 32]}, {"data_offsets": [0, 2**63]}, {"data_offsets": [-24, 0]},
        {"data_offsets": []}, {"data_offsets": None}, {"more": 1}, {"shape": [6]}, {"shape": [3, 2]}, {"dtype": "I32"},
    ):  # fmt: skip
        yield lambda path, change=change: retensor(path, {"agent.actor.weight": good | change}, bytes(24))
    for header in (
        [], None, 5, "x", {"agent.actor.weight": []}, {"agent.actor.weight": None}, {"a": good, "b": good},
        {"": good}, {"loop.step": good}, {"__metadata__": 5}, {"__metadata__": {"a": [1]}, "agent.actor.weight": good},
        {f"t{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(20_000)},
    ):  # fmt: skip
        yield lambda path, header=header: retensor(path, header, bytes(24))


# --- changes ---------------------------------------------------------------------------------------------------------


def write(path: Path, content: bytes) -> None:
    if path.exists():
        own(path)
    path.write_bytes(content)


def resize(path: Path, size: int) -> None:
    own(path)
    os.truncate(path, size)


def swap(one: Path, two: Path) -> None:
    first, second = one.read_bytes(), two.read_bytes()
    write(one, second)
    write(two, first if first != second else first + b"\n")


def relink(path: Path, inside: bool) -> None:
    """Replaces a file or folder by a link to the original, or to a file of the system."""
    target = path.resolve().with_name(f"{path.resolve().name}.real")
    if path.name == path.parent.name or path.resolve() == path.parent.resolve():
        path = path.resolve()
    path.rename(target)
    path.symlink_to(target if inside else "/etc/passwd")


def replace(path: Path, part: str, content: bytes) -> None:
    if part == MANIFEST:
        write(path / part, content)
    else:
        replace_listed(path, part, content)


def retext(path: Path, old: bytes, new: bytes) -> None:
    """Changes the text of the manifest and updates its checksum."""
    lines = (path / MANIFEST).read_bytes().split(b"\n")
    text = b"\n".join([lines[0], *lines[2:]]).replace(old, new, 1)
    first, _, rest = text.partition(b"\n")
    checksum = manifest.hashlib.sha256(text).hexdigest().encode()
    write(path / MANIFEST, first + b'\n "checksum": "' + checksum + b'",\n' + rest)


def retensor(path: Path, header: Any, data: bytes) -> None:
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    replace_listed(path, AGENT, struct.pack("<Q", len(text)) + text + data)


def sparse(path: Path, part: str, size: int) -> None:
    """A huge sparse file, listed with its size."""
    resize(path / part, size)
    forge(path, lambda m: m["files"].update({part: {"size": size, "sha256": "0" * 64}}))


def beyond_floats(path: Path) -> None:
    """A number that Python reads as infinity, with a matching digest."""
    restate(path, lambda s: s.update(x=[math.inf]))
    replace_listed(path, STATE, (path / STATE).read_bytes().replace(b"Infinity", b"1e999"))


CLASSES: dict[str, Callable[[random.Random], Iterator[Change]]] = {
    make.__name__: make
    for make in (
        *(flipped, cut, longer, blank, missing, swapped, foreign, links, pipes, folders, strange, without_a_key),
        *(of_a_wrong_type, with_more_keys, of_another_format, of_another_name, with_paths_outside, with_absurd_rings),
        *(with_absurd_fields, with_wrong_hashes, not_json, with_text_tricks, with_wrong_tags, with_alias_bombs),
        *(with_much_state, with_numbers_that_are_none, not_safetensors, with_wrong_headers),
    )
}
