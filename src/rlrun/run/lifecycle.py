"""Trains a run from the start, resumes it, or branches from it, with signals, logs and snapshots."""

import gc
import sys
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from rlrun import files
from rlrun.config import resumable
from rlrun.config.resumable import Recorded, changed, folded, word
from rlrun.config.schema import RunConfig
from rlrun.config.sources import CONF, is_preset_path, options
from rlrun.config.stored import CONFIG, read_config, read_stored
from rlrun.core.callback import Callbacks
from rlrun.core.logged import take_logged
from rlrun.core.loop import Loop
from rlrun.core.ownership import untrained
from rlrun.envs.same_spaces import difference
from rlrun.errors import ConfigError, RlrunError, RunError, SnapshotError, printable, reason
from rlrun.formats.numbers import LAST_STEP, is_whole
from rlrun.imports import traced
from rlrun.networks.torsos import has_images, overlooked
from rlrun.run import crash, exactness, postmortem
from rlrun.run.assemble import (
    build_callbacks,
    build_loop,
    check_backend,
    check_evaluation,
    check_ranges,
    check_start,
    prepare_device,
)
from rlrun.run.beside import TrainerBeside
from rlrun.run.checkpointer import (
    REPLAY,
    WITHOUT_REPLAY,
    StoreCheckpointer,
    close_store,
    open_store,
    recorded_rows,
    rings,
    saves_replay,
)
from rlrun.run.continued import check_typed, stored_parts
from rlrun.run.data import check_stored_data, data_changes
from rlrun.run.evaluator import Evaluator, EvaluatorProcess
from rlrun.run.provenance import git_diff
from rlrun.run.reschedule import fitted, zero_after_end
from rlrun.run.signals import Signals
from rlrun.run.trained import built_from, check_spaces, check_unchanged, stored_config
from rlrun.run.trainer import Trainer
from rlrun.run.untrusted import check_environment
from rlrun.run.view import LiveRun
from rlrun.run.weights import WEIGHTS_ONLY, locate, not_finite, sources, warm_start
from rlrun.rundir import META, METRICS, SUMMARY, RunDir
from rlrun.settings import registry
from rlrun.snapshot import manifest
from rlrun.snapshot.atomic import replace_file
from rlrun.snapshot.loaded import Snapshot
from rlrun.snapshot.store import Store, step_name, step_of
from rlrun.telemetry import Telemetry
from rlrun.telemetry.hints import hint, schedule_hints, start_hint
from rlrun.telemetry.loggers import Loggers, make_loggers, remember, stored_loggers
from rlrun.telemetry.metrics import MetricKeys, read_rows
from rlrun.types import MASK, Context

UNPAUSED = {"trainer.stop_at": None}  # a resume does not stop there again, unless the user types it again


@dataclass(frozen=True)
class RunResult:
    """How a run ended, and its summary.json."""

    status: str  # done | paused | stopped | failed
    exit_code: int
    summary: dict[str, object]
    fault: str = ""  # why it failed, as one line


def train(config: RunConfig, run: RunDir) -> RunResult:
    """Starts a run in its directory and trains it to the end."""
    take_logged()  # discards what an earlier run of this process has logged
    registry.load(config.plugins)
    return begin(config, run, open_store(config, run), make_loggers(config.logger))


def resume(run: RunDir, changes: Mapping[str, object] | None = None, typed: bool = False) -> RunResult:
    """Continues a run from its latest complete snapshot, or from step 0 if it has none.

    changes: new values by dotted key, for settings that a resumed run may change.
    typed: the user typed the same config on this command line, so the stored config is trusted.
    """
    take_logged()
    latest = Store(run.path).latest()
    step = 0 if latest is None else step_of(latest)
    config, loggers, _, changes = stored_parts(run.path, UNPAUSED | dict(changes or {}), step, typed)
    store = open_store(config, run)
    if not store.names():
        check_stored_data(config, run.meta().get("data"), "begin", typed)
        print(printable(f"{run.path} has no snapshot yet: it starts from step 0"))
        return begin(config, run, store, loggers)
    snapshot = store.load()
    check_unchanged(run.path, snapshot)
    summary = run.read_json(SUMMARY)
    # a run that was killed after its last snapshot goes on, because its last log rows and its summary are missing
    is_done = summary.get("status") == "done" and summary.get("step") == snapshot.step
    why = summary.get("stop_reason")
    if is_done and (snapshot.step >= config.trainer.total_steps or (why and not changes)):
        finished = f"{run.path} is finished: {snapshot.step:,} of {config.trainer.total_steps:,} steps"
        if why:
            finished += f", because {why}; a resume with other trainer.stop_when, total_steps or total_updates goes on"
        print(printable(finished))
        return RunResult("done", 0, summary)
    check_resumable(snapshot)
    check_goal(config, snapshot, changes)
    check_stored_data(config, snapshot.header.get("data"), "resume", typed)
    config = exactness.with_stored_engine(config, run.meta())
    with built_from(run.path):
        loop = build_loop(config)
    if changes:  # stored, so that the next resume uses them too
        run.change(changed(run.config(), changes), [word(*change) for change in changes.items()])
    return supervise(config, run, loop, store, loggers, snapshot)


def branch(source: Path, run: RunDir, changes: Mapping[str, object] | None = None) -> RunResult:
    """Continues from any snapshot of a run in a new directory. Does not change the source run."""
    take_logged()
    source_path, name = locate(source)
    snapshot = Store(source_path).load(name)
    config, loggers, words, changes = stored_parts(source_path, UNPAUSED | dict(changes or {}), snapshot.step)
    check_unchanged(source_path, snapshot)
    check_resumable(snapshot)
    check_goal(config, snapshot, words)
    check_stored_data(config, snapshot.header.get("data"), "resume")
    before = read_stored(source_path / CONFIG)
    run.write_start(changed(before.values, changes), [f"branched from {source}"], before.metrics_format)
    if (source_path / METRICS).exists():
        replace_file(run.path / METRICS, files.read_lines(source_path / METRICS))  # `Telemetry` cuts later rows
    run.write_json(META, RunDir.meta_of(source_path))
    config = exactness.with_stored_engine(config, run.meta())
    with built_from(source_path):
        loop = build_loop(config)
    return supervise(config, run, loop, open_store(config, run), loggers, snapshot)


def reset(source: Path, run: RunDir, changes: Mapping[str, Any]) -> RunResult:
    """Starts a new run in a new directory with the config and the weights of a run or one of its snapshots.

    Steps, schedules, exploration, optimisers, replay, random numbers and the best return start as in any new run.
    Replay is filled by `refill_policy`. Does not change the source run.
    changes: new values by dotted key, of `seed` and of settings that a resumed run may change.
    """
    take_logged()
    source_path, _ = locate(source)
    values = read_config(source_path / CONFIG)
    words = folded(UNPAUSED | dict(changes), values)
    seed = words.pop("seed", None)
    typed = words
    words = resumable.news(values, words)
    check_ranges(stored_config(source_path, words))
    values = changed(values, words)
    values |= {"run_dir": str(run.path), "init_from": str(source), "init_modules": [], "init_exploration": "fresh"}
    if seed is not None:
        values["seed"] = seed
    loop = values["algo"]["loop"]
    if "refill_policy" in loop:
        loop["warmup_policy"] = loop["refill_policy"]
    run.write_start(values, [f"reset of {source}"])
    config = stored_config(run.path)
    check_environment(config.env, typed)
    check_typed(values, {**typed, **changes})
    check_stored_data(config, RunDir.meta_of(source_path).get("data"), "begin")
    return begin(config, run, open_store(config, run), stored_loggers(config.logger, changes, source_path))


def check_resumable(snapshot: Snapshot) -> None:
    """Raises SnapshotError if the snapshot was shared without replay, environments and random numbers."""
    if snapshot.header.get(WEIGHTS_ONLY):
        raise SnapshotError(f"{snapshot.name}: holds weights alone; a new run starts from them with init_from=RUN")


def check_goal(config: RunConfig, snapshot: Snapshot, changes: Mapping[str, object] | None) -> None:
    """Raises ConfigError if the user requests a total of steps or updates that the snapshot has already reached."""
    total = config.trainer.total_steps
    if "trainer.total_steps" in (changes or {}) and total <= snapshot.step:
        raise ConfigError(f"total_steps={total}: {snapshot.name} is at step {snapshot.step:,}; set a larger number")
    updates, most = snapshot.header.get("updates"), config.trainer.total_updates
    if most is not None and "trainer.total_updates" in (changes or {}) and is_whole(updates, most, LAST_STEP):
        raise ConfigError(f"trainer.total_updates={most}: {snapshot.name} has {updates:,} updates; set a larger number")


def check(config: RunConfig) -> None:
    """Builds all parts of a run once and discards them. Raises ConfigError if training could not start."""
    registry.load(config.plugins)
    make_loggers(config.logger)
    device = prepare_device(config)
    check_start(config, device)
    env = build_loop(config).env
    try:
        check_backend(config.env.backend, env)
        check_evaluation(config, env.spec, device)
    finally:
        env.close()
        if device.type == "cuda":  # the memory of this loop's buffer belongs to the processes that train
            gc.collect()
            torch.cuda.empty_cache()


def begin(config: RunConfig, run: RunDir, store: Store, loggers: Loggers) -> RunResult:
    """Trains a run from step 0, with weights from `init_from` if it is set."""
    config, loop = build_new(config)
    return supervise(config, run, loop, store, loggers)


def build_new(config: RunConfig) -> tuple[RunConfig, Loop]:
    """Returns the loop of a new run whose first episodes have begun, and the config with the engine that it uses."""
    device = prepare_device(config)
    check_start(config, device)
    config = exactness.with_chosen_engine(config, device)
    loop = build_loop(config)
    try:
        check_backend(config.env.backend, loop.env)
        check_evaluation(config, loop.env.spec, device)
        for source, modules in sources(config):
            if not modules:
                check_spaces(f"init_from={source}", locate(source)[0], loop.env.spec)
            warm_start(source, loop, modules, config.init_exploration == "fresh")
        loop.begin()
    except BaseException:
        loop.env.close()
        raise
    return config, loop


def supervise(
    config: RunConfig, run: RunDir, loop: Loop, store: Store, loggers: Loggers, snapshot: Snapshot | None = None
) -> RunResult:
    """Trains a loop with signals, telemetry and snapshots. Writes summary.json even if training fails."""
    process = evaluator_process(config, loop)
    recorded = Recorded.read(run.path)
    keys = MetricKeys(run.metrics_format, config.algo["name"])
    log = open_log(config, run, loggers, keys, snapshot)
    status = "failed"
    line = ""
    notes = ""
    with Signals() as signals:
        callbacks = build_callbacks(config)
        trainer = make_trainer(config, loop, store, log, signals, recorded, callbacks, process)
        try:
            start(config, run, trainer, log, snapshot)
            (run.path / SUMMARY).unlink(missing_ok=True)  # if this process is killed, the run has no summary
            if snapshot is not None:
                trainer.recall([keys.current(row) for row in read_rows(run.path / METRICS)])
            callbacks.begin(LiveRun(run.path, loop, trainer.stop, log.media, config))
            if snapshot and not store.names():  # a new branch: without a snapshot, a resume would begin at step 0
                trainer.snapshot([step_name(loop.steps)])
            status = trainer.run(signals)
            code = 0
            if status == "stopped":
                code = signals.exit_code
        except (Exception, SystemExit) as fault:  # code of the user may call sys.exit
            code = getattr(fault, "exit_code", 1)
            line = printable(traced(fault))
            if isinstance(fault, RlrunError):
                line = str(fault)
            elif snapshot is not None and is_before_first_row(trainer, snapshot) and is_of_state(fault):
                code = SnapshotError.exit_code
                line = f"{snapshot.name}: does not fit this run ({manifest.line(fault)})"
            run.error_log(traceback.format_exc())
            notes = after_fault(fault, line, config, run, loop, store)
        finally:
            if process is not None:
                process.close()
            loop.env.close()
            close_store(store, log)
            summary = summarise(trainer, status)
            run.write_json(SUMMARY, summary)
            end_callbacks(callbacks, summary, log)
            advice = hint(summary, log.times, config)
            if advice:
                log.message(advice)
            log.close(summary)
    if line:
        trace = printable(run.path / "error.log")
        print(f"error: {line}{notes}\n  trace: {trace}", file=sys.stderr)
    return RunResult(status, code, summary, line)


def after_fault(fault: BaseException, line: str, config: RunConfig, run: RunDir, loop: Loop, store: Store) -> str:
    """Writes what explains a failed run, and a snapshot if there should be one. Returns what to print after the error.

    line: the error.
    """
    notes = ""
    if isinstance(fault, RunError):
        notes = postmortem.write(run, loop, line, config.algo)
    return notes + crash.save(config.trainer.snapshot_at_crash, store, line)


def evaluator_process(config: RunConfig, loop: Loop) -> EvaluatorProcess | None:
    """Returns the process that evaluates beside training, or None if there is none, or nothing for it to do.

    Raises ConfigError, after closing the environments of the loop, if it cannot be started.
    """
    cfg = config.trainer
    if not (cfg.eval_beside and cfg.eval_every and cfg.eval_episodes):  # the last evaluation needs none
        return None
    try:
        return EvaluatorProcess(config, loop)
    except BaseException:
        loop.env.close()
        raise


def open_log(
    config: RunConfig, run: RunDir, loggers: Loggers, keys: MetricKeys, snapshot: Snapshot | None
) -> Telemetry:
    """Opens the loggers of a run. Log rows after the snapshot are cut, because the resumed run writes them again."""
    remember(config.logger, loggers, run.path)
    step = 0
    written = None
    if snapshot is not None:
        step = snapshot.step
        written = recorded_rows(snapshot)
    return Telemetry(
        run.path,
        loggers,
        title=config.name,
        total_steps=config.trainer.total_steps,
        total_updates=config.trainer.total_updates,
        from_step=step,
        written=written,
        keys=keys,
        config=run.config(),
        git_diff=partial(git_diff, Path.cwd()),
    )


def is_before_first_row(trainer: Trainer, snapshot: Snapshot) -> bool:
    """Returns whether a resumed run has not written a log row yet."""
    _, steps_at_last_row, _ = trainer.last
    return steps_at_last_row == snapshot.step


def is_of_state(fault: BaseException) -> bool:
    """Returns whether wrong state may have caused an error: False if user code or a lack of resources caused it."""
    is_users = traced(fault) != reason(fault)  # `traced` adds the line of user code, if the error was raised there
    if is_users:
        return False
    return not isinstance(fault, SystemExit | OSError | MemoryError | torch.OutOfMemoryError)


def start(config: RunConfig, run: RunDir, trainer: Trainer, log: Telemetry, snapshot: Snapshot | None) -> None:
    """Restores the snapshot, reports whether the run continues exactly, and records this process in meta.json."""
    loop = trainer.loop
    facts = exactness.facts(config, loop)
    before = run.meta()
    if snapshot is None:
        run.write_json(META, facts)
        for line in announcements(config, trainer):
            log.message(line)
        return
    for fault in snapshot.faults:
        log.message(f"skipped {fault}")
    refills = loop.refills and bool(snapshot.header.get(WITHOUT_REPLAY))
    restore(trainer, snapshot, refills)
    spaces = difference(before.get("spaces"), facts["spaces"]) or ""
    others = [loop.env.exactness, spaces, log.fault, *data_changes(loop), *trainer.callbacks.warnings()]
    if refills:
        loop.refill()
        others.append(f"{snapshot.name} holds no replay")
    verdict = exactness.verdict(before, facts, others)
    line = f"resumed from step {loop.steps:,}, {verdict}"
    log.message(line)
    if verdict.startswith("not exact") and "console" not in config.logger:
        print(printable(line), file=sys.stderr)
    total_steps = config.trainer.total_steps
    if loop.horizon < total_steps or loop.update_horizon < (config.trainer.total_updates or 0):
        last = Context(loop.updates, total_steps - 1, 1.0)
        for line in zero_after_end(loop.schedules, last):
            log.message(line)
            if "console" not in config.logger:
                print(printable(line), file=sys.stderr)
    resumed = [*before.get("resumed", []), {"step": loop.steps, "verdict": verdict, **facts}]
    run.write_json(META, before | {"resumed": resumed})


def restore(trainer: Trainer, snapshot: Snapshot, refills: bool) -> None:
    """Loads a snapshot, without its replay if that is refilled. Raises SnapshotError if it does not fit this run."""
    loop = trainer.loop
    state = fitted(snapshot.state, loop)
    if refills:
        state |= {key: value for key, value in loop.state_dict().items() if key.startswith(REPLAY)}
    try:
        steps = state["_extra_state"]["steps"]
        if steps != snapshot.step:
            raise ValueError(f"its header is of step {snapshot.step}, its state of step {steps}")
        trainer.load(state, snapshot.clocks)
        place = not_finite(loop)
        if place is not None:
            raise ValueError(f"{place} holds numbers that are not finite")
        if not refills:
            for name, ring in rings(loop).items():
                snapshot.restore_ring(name, ring)
    except RlrunError:
        raise
    except Exception as error:  # an untrusted snapshot may hold anything
        raise SnapshotError(f"{snapshot.name}: does not fit this run ({manifest.line(error)})") from error


def is_preset(name: str) -> bool:
    """Returns whether rlrun has a preset of this name."""
    return name in options("preset", [CONF])


def announcements(config: RunConfig, trainer: Trainer) -> Iterator[str]:
    """Yields messages at the start of a new run: its preset, what is not exact, settings without effect."""
    loop = trainer.loop
    if config.preset is not None:
        place = ""
        if not is_preset_path(config.preset) and not is_preset(config.preset):
            place = " (of your own)"
        yield f"preset {config.preset}{place}; preset=none trains with the defaults of the algorithm"
    if config.trainer.snapshot_every is not None and loop.env.exactness != "exact":
        yield f"a resume of this run will be {loop.env.exactness}"
    if loop.env.verdict is not None and loop.env.verdict.unrepeatable:
        yield f"env {loop.env.name}: {loop.env.verdict.unrepeatable}"
    if not saves_replay(config, loop):
        yield "a resume of this run will be not exact, because its snapshots hold no replay"
    if line := untrained(loop.agent, loop.addons):
        yield line
    yield from loop.agent.memory.hints()
    advice = start_hint(*loop.first_update(), config.trainer.total_steps)
    if advice:
        yield advice
    if config.network["name"] == "auto":
        yield from overlooked(loop.env.spec.obs)
    name = config.algo["name"]
    if config.preset is None and is_preset(f"{name}-atari") and has_images(loop.agent):
        yield f"the defaults of {name} are for vectors; preset={name}-atari has its paper's values for images"
    yield from schedule_hints(loop.last_points(), config.trainer.total_steps)
    yield from trainer.callbacks.announcements()


def end_callbacks(callbacks: Callbacks, summary: dict[str, object], log: Telemetry) -> None:
    """Calls `on_end` of the callbacks. Only logs an error, because the run has ended anyway."""
    try:
        callbacks.call("on_end", summary)
    except RunError as error:
        log.message(str(error))


def make_trainer(
    config: RunConfig,
    loop: Loop,
    store: Store,
    log: Telemetry,
    signals: Signals,
    recorded: Recorded,
    callbacks: Callbacks | None = None,
    process: EvaluatorProcess | None = None,
) -> Trainer:
    """Returns the trainer of a loop, with its evaluation function and its checkpointer.

    process: evaluates beside training.
    """
    masked = MASK in getattr(loop.env.spec.obs, "spaces", ())
    evaluator = Evaluator(config, loop.agent, loop.addons, loop.env.device, masked)

    def evaluate_at(step: int) -> dict[str, float]:
        found = evaluator.evaluate(step, lambda: bool(signals.received))
        loop.addons.on_evaluation(found)
        return found

    checkpointer = StoreCheckpointer(config, loop, store, log, recorded)
    parts = (config.trainer, loop, log, evaluate_at, checkpointer, callbacks)
    if process is not None:
        return TrainerBeside(process, *parts)
    return Trainer(*parts)


def summarise(trainer: Trainer, status: str) -> dict[str, object]:
    """Returns the content of summary.json."""
    progress = trainer.progress
    loop = trainer.loop
    seconds = trainer.elapsed()
    summary = {
        "status": status, "step": loop.steps, "total_steps": trainer.cfg.total_steps,
        "final_return": progress.final_return, "best_return": progress.best_return, "best_step": progress.best_step,
        "wall_s": round(seconds, 3), "steps_per_s": round(loop.steps / max(seconds, 1e-9), 1),
    }  # fmt: skip
    if trainer.stop_reason is not None:
        summary["stop_reason"] = trainer.stop_reason
    return summary
