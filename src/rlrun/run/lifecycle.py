"""A run from start to end: trained, resumed or branched, with signals, logs and snapshots."""

import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlrun import engine, files, registry
from rlrun.buffers.ring import Ring
from rlrun.config import resumable
from rlrun.config.check import show
from rlrun.config.resumable import Recorded, changed
from rlrun.config.schema import RunConfig
from rlrun.config.stored import CONFIG, read_config, read_stored
from rlrun.core.loop import Loop
from rlrun.envs.untrusted import check_environment
from rlrun.errors import ConfigError, RlrunError, RunError, SnapshotError, printable, reason
from rlrun.run import exactness, postmortem
from rlrun.run.assemble import build_loop, check_start, eval_env, prepare_device
from rlrun.run.data import check_stored_data, data_changes, data_digests
from rlrun.run.evaluation import evaluate as run_episodes
from rlrun.run.signals import Signals
from rlrun.run.trained import built_from, check_unchanged, stored_config
from rlrun.run.trainer import Trainer
from rlrun.run.weights import WEIGHTS_ONLY, locate, warm_start
from rlrun.rundir import META, METRICS, RunDir
from rlrun.snapshot import manifest
from rlrun.snapshot.atomic import replace_file
from rlrun.snapshot.loaded import Snapshot
from rlrun.snapshot.store import Store, step_name
from rlrun.telemetry import Telemetry
from rlrun.telemetry.hints import hint
from rlrun.telemetry.metrics import MetricKeys, Written
from rlrun.types import MASK


@dataclass(frozen=True)
class Result:
    """How a run ended, and its summary.json."""

    status: str  # done | stopped | failed
    exit_code: int
    summary: dict[str, Any]


def train(config: RunConfig, run: RunDir) -> Result:
    """Start a run in its directory and train it to the end."""
    registry.load(config.plugins)
    return begin(config, run, open_store(config, run))


def resume(run: RunDir, changes: Mapping[str, Any] | None = None, typed: bool = False) -> Result:
    """Continue from the latest complete snapshot.

    changes: key paths that may differ from the recorded config. typed: the user typed the same config on this command
    line, so that it is trusted.
    """
    words = changes or {}
    changes = resumable.news(run.config(), words)
    config = stored_config(run.path, changes, typed)
    if not typed:
        check_environment(config.env, words)
    store = open_store(config, run)
    if not store.names():
        check_stored_data(config, run.meta().get("data"), "begin", typed)
        print(printable(f"{run.path} has no snapshot yet: it starts from step 0"))
        return begin(config, run, store)
    snapshot = store.load()
    check_unchanged(run.path, snapshot)
    summary = run.read_json("summary.json")
    ended = (summary.get("status"), summary.get("step")) == ("done", snapshot.step)  # else its last rows are missing
    if ended and snapshot.step >= config.trainer.total_steps:
        print(printable(f"{run.path} is finished: {snapshot.step:,} of {config.trainer.total_steps:,} steps"))
        return Result("done", 0, summary)
    check_resumable(snapshot)
    check_goal(config, snapshot, changes)
    check_stored_data(config, snapshot.header.get("data"), "resume", typed)
    config = exactness.decided(config, run.meta())
    with built_from(run.path):
        loop = build_loop(config)
    if changes:  # the next resume goes on to the same end
        run.change(changed(run.config(), changes), [f"{key}={show(value)}" for key, value in changes.items()])
    return supervise(config, run, loop, store, snapshot)


def branch(source: Path, run: RunDir, changes: Mapping[str, Any] | None = None) -> Result:
    """Continue from any snapshot of a run in a new directory; the source is not changed."""
    source_path, name = locate(source)
    words = changes or {}
    changes = resumable.news(read_config(source_path / CONFIG), words)
    config = stored_config(source_path, changes)
    check_environment(config.env, words)
    snapshot = Store(source_path).load(name)
    check_unchanged(source_path, snapshot)
    check_resumable(snapshot)
    check_goal(config, snapshot, words)
    check_stored_data(config, snapshot.header.get("data"), "resume")
    stored = read_stored(source_path / CONFIG)
    run.write_start(changed(stored.values, changes), [f"branched from {source}"], stored.metrics_format)
    if (source_path / METRICS).exists():
        replace_file(run.path / METRICS, files.read_lines(source_path / METRICS))  # rows after the snapshot are cut
    run.write_json(META, RunDir.meta_of(source_path))
    config = exactness.decided(config, run.meta())
    with built_from(source_path):
        loop = build_loop(config)
    return supervise(config, run, loop, open_store(config, run), snapshot)


def check_resumable(snapshot: Snapshot) -> None:
    """Raises SnapshotError if the snapshot was shared without replay, environments and random numbers."""
    if snapshot.header.get(WEIGHTS_ONLY):
        raise SnapshotError(f"{snapshot.name}: holds weights alone; a new run starts from them with init_from=RUN")


def check_goal(config: RunConfig, snapshot: Snapshot, changes: Mapping[str, Any] | None) -> None:
    """Raises ConfigError where the snapshot is at or past the requested number of steps."""
    total = config.trainer.total_steps
    if "trainer.total_steps" in (changes or {}) and total <= snapshot.step:
        raise ConfigError(f"total_steps={total}: {snapshot.name} is at step {snapshot.step:,}; ask for more")


def open_store(config: RunConfig, run: RunDir) -> Store:
    """The snapshots of a run, to be read and written."""
    return Store(run.path, config.trainer.snapshot_keep, config.trainer.snapshot_archive_every)


def check(config: RunConfig) -> None:
    """Build everything once and discard it. Raises ConfigError for what training would refuse."""
    registry.load(config.plugins)
    check_start(config, prepare_device(config))
    build_loop(config).env.close()


def begin(config: RunConfig, run: RunDir, store: Store) -> Result:
    """Train from step 0."""
    if config.init_modules and config.init_from is None:
        raise ConfigError(f"init_modules=[{','.join(config.init_modules)}]: needs init_from=RUN to take them from")
    device = prepare_device(config)
    check_start(config, device)
    config = engine.follow(config, device)
    loop = build_loop(config)
    try:
        if config.init_from is not None:
            warm_start(Path(config.init_from), loop, config.init_modules)
        loop.begin()
    except BaseException:
        loop.env.close()
        raise
    return supervise(config, run, loop, store)


def supervise(config: RunConfig, run: RunDir, loop: Loop, store: Store, snapshot: Snapshot | None = None) -> Result:
    """Train with signals, telemetry and snapshots. Leaves a summary.json however training ends."""
    recorded = Recorded.read(run.path)
    step, written = 0, None
    if snapshot is not None:
        step, written = snapshot.step, recorded_rows(snapshot)
    keys = MetricKeys(run.metrics_format, config.algo["name"])
    log = Telemetry(run.path, config.logger, config.name, config.trainer.total_steps, step, written, keys)
    status, code, line = "failed", 1, ""
    with Signals() as signals:
        trainer = make_trainer(config, loop, store, log, signals, recorded)
        try:
            start(config, run, trainer, log, snapshot)
            if snapshot and not store.names():  # a branch, which must not begin at step 0 if it is killed soon
                trainer.snapshot([step_name(loop.steps)])
            status = trainer.run(signals)
            code = 0
            if status == "stopped":
                code = signals.exit_code
        except Exception as fault:
            code = getattr(fault, "exit_code", 1)
            line = printable(reason(fault))
            if isinstance(fault, RlrunError):
                line = str(fault)
            run.error_log(traceback.format_exc())
            if isinstance(fault, RunError):
                postmortem.write(run, loop, line)
        finally:
            loop.env.close()
            close_store(store, log)
            summary = summarise(trainer, status)
            run.write_json("summary.json", summary)
            if advice := hint(summary, log.times, config):
                log.message(advice)
            log.close(summary)
    if line:
        trace = printable(run.path / "error.log")
        print(f"error: {line}\n  trace: {trace}", file=sys.stderr)
    return Result(status, code, summary)


def start(config: RunConfig, run: RunDir, trainer: Trainer, log: Telemetry, snapshot: Snapshot | None) -> None:
    """Restore a snapshot, report how exactly the run continues, and record this process in meta.json."""
    loop, facts, before = trainer.loop, exactness.facts(config, trainer.loop), run.meta()
    if snapshot is None:
        run.write_json(META, facts)
        if config.trainer.snapshot_every is not None and loop.env.exactness != "exact":
            log.message(f"a resume of this run will be {loop.env.exactness}")
        return
    for fault in snapshot.faults:
        log.message(f"skipped {fault}")
    try:
        trainer.load(dict(snapshot.state), snapshot.clocks)
        if loop.steps != snapshot.step:
            raise ValueError(f"it is of step {snapshot.step}, its state of step {loop.steps}")
    except RlrunError:
        raise
    except Exception as error:  # an untrusted snapshot may hold anything
        raise SnapshotError(f"{snapshot.name}: does not fit this run ({manifest.line(error)})") from error
    for name, ring in rings(loop).items():
        snapshot.restore_ring(name, ring)
    others = [loop.env.exactness, log.fault, *data_changes(loop)]
    verdict = exactness.verdict(before, facts, others, snapshot.format)
    line = f"resumed from step {loop.steps:,}, {verdict}"
    log.message(line)
    if verdict.startswith("not exact") and not config.logger.console:
        print(printable(line), file=sys.stderr)
    resumed = [*before.get("resumed", []), {"step": loop.steps, "verdict": verdict, **facts}]
    run.write_json(META, before | {"resumed": resumed})


def recorded_rows(snapshot: Snapshot) -> Written | None:
    """The rows of metrics that were written when the snapshot was taken; None for a header without them."""
    match snapshot.header.get("metrics"):
        case {"rows": int(rows), "sha256": str(sha256)} if rows >= 0:
            return Written(rows, sha256)
    return None


class StoreCheckpointer:
    """Saves a run in its store, with a header that a resume checks."""

    def __init__(self, config: RunConfig, loop: Loop, store: Store, log: Telemetry, recorded: Recorded):
        self.config, self.loop, self.store, self.log, self.recorded = config, loop, store, log, recorded
        self.rings = rings(loop)

    def save(self, names: list[str], state: dict[str, Any], clocks: dict[str, float]) -> None:
        """Take a snapshot; the rows of metrics so far are on disk before it."""
        header = {
            "step": self.loop.steps,
            "total_steps": self.config.trainer.total_steps,
            "algo": self.config.algo["name"],
            **self.recorded._asdict(),
            "metrics": self.log.written._asdict(),
            "data": data_digests(self.loop),
        }
        self.store.save(names, state, self.rings, header, clocks, first=self.log.sync)

    def flush(self) -> None:
        """Write the segments of replay that have filled."""
        self.store.seal(self.rings)

    def wait(self) -> None:
        """Return once the last snapshot is on disk."""
        self.store.wait()


def make_trainer(
    config: RunConfig, loop: Loop, store: Store, log: Telemetry, signals: Signals, recorded: Recorded
) -> Trainer:
    """The trainer of a loop, with how it evaluates and where it saves."""
    episodes = config.trainer.eval_episodes
    masked = MASK in getattr(loop.env.spec.obs, "spaces", ())

    def evaluate_at(step: int) -> dict[str, float]:
        env = eval_env(config, config.seed, f"eval.{step}", episodes, loop.env.device, masked)
        try:
            found = run_episodes(loop.agent, loop.addons, env, episodes, interrupted=lambda: bool(signals.received))
        finally:
            env.close()
        loop.addons.evaluated(found)
        return found

    return Trainer(config.trainer, loop, log, evaluate_at, StoreCheckpointer(config, loop, store, log, recorded))


def close_store(store: Store, log: Telemetry) -> None:
    """Finish the snapshot that is being written; where that fails, say so, for the run has ended anyway."""
    try:
        store.close()
    except SnapshotError as error:
        log.message(str(error))


def rings(loop: Loop) -> dict[str, Ring]:
    """The ring buffers of a run, which snapshots store in segments, by module path."""
    return {name: module for name, module in loop.named_modules() if isinstance(module, Ring)}


def summarise(trainer: Trainer, status: str) -> dict[str, Any]:
    """The content of summary.json."""
    progress, loop, seconds = trainer.progress, trainer.loop, trainer.elapsed()
    return {
        "status": status, "step": loop.steps, "total_steps": trainer.cfg.total_steps,
        "final_return": progress.final_return, "best_return": progress.best_return, "best_step": progress.best_step,
        "wall_s": round(seconds, 3), "steps_per_s": round(loop.steps / max(seconds, 1e-9), 1),
    }  # fmt: skip
