"""Switches off protections, one function each, to test the fault tests.

    name     protection                              off: what is done instead           must then turn red
    hash     snapshot.manifest.check_hash            bytes are not compared              bit flips, truncations
    verify   snapshot.manifest.check_files,          what is listed, and what lies       malformed snapshots
             .check_folder                           there, is not looked at
    fsync    snapshot.atomic.sync                    the disk is not waited for          cuts of the power
    rename   snapshot.atomic.rename                  files are copied under their name   kills inside the write
    lock     operating_system.fcntl.flock            nothing is locked                   two writers, 64 resumes
    rng      core.random.Stream.set_extra_state      streams start afresh                kills, signals: bit equality
    env      envs.stepping.vector.VectorEnv._restore environments are reset              kills, signals: bit equality
    kept     shards.repeating.Repeating._keep        the calls are kept, not the state   workers of shards
    handed   shards.repeating.Repeating._move        shards move without their state     workers of shards
    order    shards.env.ShardedEnv.result, .steps    shards are in another order         workers of shards

A child process calls `switch_off(name)` before anything else; a test uses `without(name)`.
"""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

Patch = Callable[[pytest.MonkeyPatch], None]


def switch_off(name: str) -> None:
    """Switches a protection off for the rest of this process."""
    PROTECTIONS[name](pytest.MonkeyPatch())


@contextmanager
def without(name: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        PROTECTIONS[name](patch)
        yield


def no_hash(patch: pytest.MonkeyPatch) -> None:
    from rlrun.snapshot import manifest

    patch.setattr(manifest, "check_hash", lambda found, expected: None)


def no_verify(patch: pytest.MonkeyPatch) -> None:
    from rlrun.snapshot import manifest

    def sizes(facts: Any, folder: Path) -> dict[str, int]:
        return {part: file.size for part, file in facts.files.items()}

    patch.setattr(manifest, "check_files", lambda facts, name: None)
    patch.setattr(manifest, "check_folder", sizes)


def no_fsync(patch: pytest.MonkeyPatch) -> None:
    from rlrun.snapshot import atomic

    patch.setattr(atomic, "sync", lambda descriptor: None)


def no_rename(patch: pytest.MonkeyPatch) -> None:
    from rlrun.snapshot import atomic

    patch.setattr(atomic, "rename", lambda source, target: _copy(Path(source), Path(target)))


def _copy(source: Path, target: Path) -> None:
    """Copies a folder file by file, where a rename would be atomic."""
    if source.is_dir():
        os.mkdir(target)
        for path in sorted(source.iterdir()):
            _copy(path, target / path.name)
        os.rmdir(source)
        return
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, stat.S_IMODE(source.stat().st_mode))
    os.write(descriptor, source.read_bytes())
    os.close(descriptor)
    os.unlink(source)


def no_lock(patch: pytest.MonkeyPatch) -> None:
    from rlrun import operating_system

    patch.setattr(operating_system.fcntl, "flock", lambda descriptor, operation: None)


def no_rng(patch: pytest.MonkeyPatch) -> None:
    from rlrun.core.random import Stream

    patch.setattr(Stream, "set_extra_state", lambda self, state: None)


def no_env(patch: pytest.MonkeyPatch) -> None:
    from rlrun.envs.stepping.vector import VectorEnv

    def restore(self: VectorEnv, trees: Any) -> dict[int, str]:
        self._reset(None)
        return {}

    patch.setattr(VectorEnv, "_restore", restore)


def no_kept(patch: pytest.MonkeyPatch) -> None:
    from rlrun.shards.repeating import Repeating

    def forget(group: Any) -> None:
        group.result()
        group.calls, group.keeps = [], False

    patch.setattr(Repeating, "_keep", forget)


def no_handed(patch: pytest.MonkeyPatch) -> None:
    from rlrun.shards.repeating import Repeating

    def move(group: Any, there: Any) -> None:
        group.group.close()
        group.group = there

    patch.setattr(Repeating, "_move", move)


def no_order(patch: pytest.MonkeyPatch) -> None:
    from rlrun.shards.env import ShardedEnv

    def as_they_come(method: Any) -> Any:
        def reversed_groups(env: Any, *given: Any) -> Any:
            groups, env.groups = env.groups, env.groups[::-1]
            try:
                return [*method(env, *given)]
            finally:
                env.groups = groups

        return reversed_groups

    for name in ("result", "steps"):
        patch.setattr(ShardedEnv, name, as_they_come(getattr(ShardedEnv, name)))


PROTECTIONS: dict[str, Patch] = {
    "hash": no_hash, "verify": no_verify, "fsync": no_fsync, "rename": no_rename, "lock": no_lock, "rng": no_rng,
    "env": no_env, "kept": no_kept, "handed": no_handed, "order": no_order,
}  # fmt: skip
