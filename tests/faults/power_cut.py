"""A model of the content of a disk after a power cut, for a disk that keeps no more than `fsync` guarantees.

The model records the calls that change files. After a cut

- a file has the content of its last fsync, and is empty if it was never synced;
- creations, renamings and deletions of names are kept in order up to some call: at least up to the last one before an
  fsync of its folder, at most all (a journal keeps the order).

kill -9 cannot test this, because the operating system outlives the process and writes everything.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


@dataclass
class File:
    data: bytes
    kept: bytes = b""  # content at the last fsync


Tree = dict[str, File | None]  # by path; None: a folder


@dataclass
class Call:
    kind: str  # name | write | sync
    folders: tuple[str, ...] = ()  # folder whose names the call changes or syncs
    change: Callable[[Tree], object] | None = None


class Disk:
    """Records calls within a `with` block; `after` returns what a cut may leave."""

    def __init__(self, root: Path):
        self.root, self.calls, self.patch = str(root), list[Call](), pytest.MonkeyPatch()
        self.start: Tree = {}
        for path in root.rglob("*"):
            content = None if path.is_dir() else path.read_bytes()
            self.start[str(path)] = None if content is None else File(content, content)

    def __enter__(self) -> "Disk":
        for name in ("open", "write", "fsync", "replace", "mkdir", "unlink", "rmdir", "link"):
            self.patch.setattr(os, name, getattr(self, f"_{name}")(getattr(os, name)))
        return self

    def __exit__(self, *_: object) -> None:
        self.patch.undo()

    # --- recording ---------------------------------------------------------------------------------------------------

    def _open(self, real: Any) -> Any:
        def call(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
            descriptor: int = real(path, flags, mode, dir_fd=dir_fd)
            if flags & os.O_CREAT:
                place = _place(path, dir_fd)
                self._names(lambda tree: tree.setdefault(place, File(b"")), place)
            return descriptor

        return call

    def _write(self, real: Any) -> Any:
        def call(descriptor: int, data: Any) -> int:
            written: int = real(descriptor, data)
            place, more = _of(descriptor), bytes(data[:written])
            self.calls.append(Call("write", change=lambda tree: _append(tree[place], more)))
            return written

        return call

    def _fsync(self, real: Any) -> Any:
        def call(descriptor: int) -> None:
            place = _of(descriptor)
            if os.path.isdir(place):
                self.calls.append(Call("sync", (place,)))
            else:
                self.calls.append(Call("sync", change=lambda tree: _keep(tree[place])))

        return call

    def _replace(self, real: Any) -> Any:
        def call(source: Any, target: Any) -> None:
            real(source, target)
            self._names(lambda tree: _move(tree, str(source), str(target)), source, target)

        return call

    def _link(self, real: Any) -> Any:
        def call(source: Any, target: Any) -> None:
            real(source, target)
            self._names(lambda tree: tree.update({str(target): tree[str(source)]}), target)

        return call

    def _mkdir(self, real: Any) -> Any:
        def call(path: Any, *args: Any) -> None:
            real(path, *args)
            self._names(lambda tree: tree.update({str(path): None}), path)

        return call

    def _unlink(self, real: Any) -> Any:
        def call(path: Any, *, dir_fd: int | None = None) -> None:
            place = _place(path, dir_fd)
            real(path, dir_fd=dir_fd)
            self._names(lambda tree: tree.pop(place), place)

        return call

    _rmdir = _unlink

    def _names(self, change: Callable[[Tree], object], *paths: Any) -> None:
        self.calls.append(Call("name", tuple(os.path.dirname(path) for path in paths), change))

    # --- cutting -----------------------------------------------------------------------------------------------------

    def after(self, count: int) -> list[dict[str, bytes | None]]:
        """Returns the least and the most that a cut after so many calls leaves: content by path, None for folders."""
        past, sure = self.calls[:count], 0
        for index, call in enumerate(past):
            if call.kind == "sync" and call.folders:
                (folder,) = call.folders
                made = (i + 1 for i in range(index) if past[i].kind == "name" and folder in past[i].folders)
                sure = max([sure, *made])
        return [self._tree(past, names) for names in (sure, count)]

    def _tree(self, calls: list[Call], names: int) -> dict[str, bytes | None]:
        """Returns the files after all writes and syncs, and after the changes of names among the first calls."""
        everything = {path: file and File(file.data, file.kept) for path, file in self.start.items()}
        seen = dict(everything)
        for index, call in enumerate(calls):
            if call.change:
                call.change(everything)
            if index < names:
                seen = dict(everything)  # the same file objects: a later sync applies to a file under any name
        return {path: file and file.kept for path, file in seen.items()}

    def lay_out(self, tree: dict[str, bytes | None], folder: Path) -> None:
        """Writes this content to `folder`, which is empty."""
        for path in sorted(tree):
            place, content = folder / os.path.relpath(path, self.root), tree[path]
            if content is None:
                place.mkdir()
            else:
                place.write_bytes(content)


def _place(path: Any, dir_fd: int | None) -> str:
    return str(path) if dir_fd is None else f"{_of(dir_fd)}/{path}"


def _of(descriptor: int) -> str:
    return os.readlink(f"/proc/self/fd/{descriptor}")


def _append(file: File | None, data: bytes) -> None:
    assert file
    file.data += data


def _keep(file: File | None) -> None:
    assert file
    file.kept = file.data


def _move(tree: Tree, source: str, target: str) -> None:
    moved = [path for path in tree if path == source or path.startswith(f"{source}/")]
    tree.update([(target + path[len(source) :], tree.pop(path)) for path in moved])
