"""Every protection is switched off once, and its tests must then fail.

These are short versions; `scripts/faults --sabotage` does the same with whole runs.
"""

import os
import random
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import malformed
import pytest
import test_snapshot_disk as disk
import test_snapshot_power as power
from faulty_disk import Faulty, Killed
from sabotage import PROTECTIONS, without
from stores import flip, quick_folder, restored, three
from toys import equal, toy, train

from rlrun.errors import ConfigError, RlrunError, SnapshotError
from rlrun.run.checkpointer import rings
from rlrun.rundir import RunDir
from rlrun.snapshot import segments
from rlrun.snapshot.store import Store, step_name

LATEST = step_name(2)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT_ROWS", 16)


def taken(changes: list[Any]) -> int:
    """Returns the number of damaged snapshots that are used without a message."""
    count = 0
    with quick_folder() as folder:
        (folder / "base").mkdir()
        three(folder / "base")
        for index, change in enumerate(changes):
            run = folder / str(index)
            shutil.copytree(folder / "base", run, copy_function=os.link)
            change(run / "snapshots" / LATEST)
            try:
                restored(Store(run).load(LATEST))
                count += 1
            except SnapshotError:
                pass
    return count


def bit_flips() -> int:
    """Returns the number of flipped bits in segments, state and tensors that were not detected."""
    rng, changes = random.Random(0), []
    for part in ("agent.safetensors", "state.safetensors", "replay/segment_000001.bin"):
        for at in (0.999 * rng.random() for _ in range(5)):
            changes.append(lambda path, part=part, at=at: flip(path / part, int(at * 8 * (path / part).stat().st_size)))
    return taken(changes)


def strangers() -> int:
    rng = random.Random(0)
    classes = (malformed.strange, malformed.links, malformed.with_absurd_rings, malformed.of_another_name)
    return taken([change for make in classes for change in make(rng)])


def power_cuts() -> int:
    return len(power.lost())


def kills() -> int:
    """Returns the kills, at every third call of a write, after which the latest or the best snapshot is not whole."""
    count = 0
    with quick_folder() as folder:
        (folder / "base").mkdir()
        base = three(folder / "base")
        for nth in range(30, 400, 3):
            run = folder / str(nth)
            shutil.copytree(base, run)
            training = disk.Training(run)
            with Faulty(nth=nth) as fault:
                with suppress(Killed):
                    training.go_on(3)
                training.store._writer.shutdown()
            try:
                store = Store(run, keep=2)
                count += bool(store.load().faults)
                store.load("best")
            except SnapshotError:
                count += 1
            if fault.count <= nth:
                break
    return count


def two_writers() -> int:
    with quick_folder() as folder:
        first = RunDir(folder)
        try:
            RunDir(folder).release()
        except ConfigError:
            return 0
        finally:
            first.release()
    return 1


def other_rows() -> int:
    """Returns the differing next steps of a run that was saved in mid-episode and resumed in a new process."""
    from rlrun.config.schema import run_config
    from rlrun.run.assemble import build_loop

    loop, other = (build_loop(run_config(toy("sac"))) for _ in range(2))
    with quick_folder() as folder:
        loop.begin()
        train(loop, 2)
        store = Store(folder, keep=1)
        store.save(step_name(loop.steps), loop.state_dict(), rings(loop), {"step": loop.steps}, {})
        snapshot = store.load()
        other.load_state_dict(snapshot.state)
        for name, ring in rings(other).items():
            snapshot.restore_ring(name, ring)
        store.close()
    rows = [[(one.tick(), one.obs.clone()) for _ in range(6)] for one in (loop, other)]
    loop.env.close()
    other.env.close()
    return sum(not equal(a, b) for a, b in zip(*rows, strict=True))


def other_shards() -> int:
    """Returns the differing ticks of a run whose shards lose a worker, beside one that does not."""
    from rlrun.config.schema import run_config
    from rlrun.run.assemble import build_loop

    workers = {"name": "local", "workers": None, "on_lost": "repeat", "state_every": 1}
    values = toy("ppo", **{"algo.loop.shards": 2, "env.num_envs": 4})
    found = []
    for place in ({"name": "none"}, workers):
        loop = build_loop(run_config(values | {"cluster": place}))
        loop.begin()
        ticks = [(loop.tick(), loop.obs.clone())]
        for group in loop.env.groups[:1]:
            if place is workers:
                group.group.worker.pipe.process.kill()
        try:
            ticks.append((loop.tick(), loop.obs.clone()))
            for group in loop.env.groups[:1]:
                while place is workers and not group.requested.ready():
                    time.sleep(0.01)
            ticks.append((loop.tick(), loop.obs.clone()))
        except RlrunError:
            ticks += [({}, None)] * (3 - len(ticks))
        loop.env.close()
        found.append(ticks)
    return sum(not equal(a, b) for a, b in zip(*found, strict=True))


CHECKS: dict[str, Callable[[], int]] = {
    "hash": bit_flips, "verify": strangers, "fsync": power_cuts, "rename": kills, "lock": two_writers,
    "rng": other_rows, "env": other_rows, "kept": other_shards, "handed": other_shards,
    "order": other_shards,
}  # fmt: skip


def test_every_protection_has_its_check() -> None:
    assert CHECKS.keys() == PROTECTIONS.keys()


@pytest.mark.parametrize("name", PROTECTIONS)
def test_a_check_sees_that_its_protection_is_off(name: str) -> None:
    assert CHECKS[name]() == 0
    with without(name):
        assert CHECKS[name]() > 0
