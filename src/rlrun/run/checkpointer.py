"""Saves the snapshots of a run: which of its state they hold, and what their headers say."""

from fractions import Fraction

from rlrun.buffers.ring import RingBuffer
from rlrun.config.resumable import Recorded
from rlrun.config.schema import RunConfig
from rlrun.core.loop import Loop
from rlrun.errors import SnapshotError
from rlrun.run.data import data_digests
from rlrun.run.weights import ADDONS, without
from rlrun.rundir import RunDir
from rlrun.snapshot.loaded import Snapshot
from rlrun.snapshot.store import Store
from rlrun.telemetry import Telemetry
from rlrun.telemetry.metrics import WrittenRows

WITHOUT_REPLAY = "without_replay"  # in the header of a snapshot that holds no replay
REPLAY = "buffer."  # prefix of the state of the replay buffer


class StoreCheckpointer:
    """Saves snapshots of a run in its store, with a header that a resume checks."""

    def __init__(self, config: RunConfig, loop: Loop, store: Store, log: Telemetry, recorded: Recorded):
        self.config, self.loop, self.store, self.log, self.recorded = config, loop, store, log, recorded
        self.rings = saved_rings(config, loop)

    def save(self, names: list[str], state: dict[str, object], clocks: dict[str, float]) -> None:
        """Takes a snapshot. The log rows so far are written to disk first."""
        header, state = self.contents(state)
        self.store.save(names, state, self.rings, header, clocks, first=self.log.sync)

    def hold(self, name: str, state: dict[str, object], clocks: dict[str, float]) -> None:
        """Keeps a copy of the state in memory, which is saved if the run crashes."""
        header, state = self.contents(state)
        self.store.hold(name, state, self.rings, header, clocks, first=self.log.sync)

    def may_hold(self, is_due: bool) -> bool:
        """Returns whether `hold` should be called: when it is due, or if no copy is kept any more."""
        return self.store.may_hold(is_due)

    def contents(self, state: dict[str, object]) -> tuple[dict[str, object], dict[str, object]]:
        """Returns the header of a snapshot, and the state that it holds."""
        header: dict[str, object] = {
            "step": self.loop.steps,
            "updates": self.loop.updates,
            "total_steps": self.config.trainer.total_steps,
            "algo": self.config.algo["name"],
            ADDONS: self.loop.addons.sections,
            **self.recorded._asdict(),
            "metrics": self.log.written._asdict(),
            "data": data_digests(self.loop),
        }
        if not saves_replay(self.config, self.loop):
            header[WITHOUT_REPLAY] = True
            state = without(state, (REPLAY,))
        return header, state

    def mark_best(self, name: str) -> None:
        """Links the snapshot of this name as the best one."""
        self.store.mark_best(name)

    def flush(self) -> None:
        """Writes the full segments of the replay buffer."""
        self.store.seal(self.rings)

    def wait(self) -> None:
        """Waits until the last snapshot is on disk."""
        self.store.wait()


def open_store(config: RunConfig, run: RunDir) -> Store:
    """Opens the snapshots of a run for reading and writing."""
    cfg = config.trainer
    if cfg.num_snapshots is None:
        return Store(run.path, cfg.snapshot_keep, cfg.snapshot_archive_every)
    if cfg.total_updates is not None:  # their steps are not known in advance
        return Store(run.path, cfg.snapshot_keep + cfg.num_snapshots)
    return Store(run.path, cfg.snapshot_keep, Fraction(cfg.total_steps, cfg.num_snapshots))


def close_store(store: Store, log: Telemetry) -> None:
    """Waits for the snapshot that is being written. Only logs an error, because the run has ended anyway."""
    try:
        store.close()
    except SnapshotError as error:
        log.message(str(error))


def rings(loop: Loop) -> dict[str, RingBuffer]:
    """Returns the ring buffers of a run by module path. A snapshot that holds one stores it in segments."""
    return {name: module for name, module in loop.named_modules() if isinstance(module, RingBuffer)}


def saves_replay(config: RunConfig, loop: Loop) -> bool:
    """Returns whether snapshots hold the replay buffer of a loop, if it has one."""
    return config.trainer.snapshot_replay or not loop.refills


def saved_rings(config: RunConfig, loop: Loop) -> dict[str, RingBuffer]:
    """Returns the ring buffers that snapshots hold."""
    found = rings(loop)
    if not saves_replay(config, loop):
        found = without(found, (REPLAY,))
    return found


def recorded_rows(snapshot: Snapshot) -> WrittenRows | None:
    """Returns number and hash of the log rows written before the snapshot, or None if its header lacks them."""
    match snapshot.header.get("metrics"):
        case {"rows": int(rows), "sha256": str(sha256)} if rows >= 0:
            return WrittenRows(rows, sha256)
    return None
