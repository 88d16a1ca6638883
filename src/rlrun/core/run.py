"""From a typed config to a run: everything is assembled here, and trained, resumed or evaluated."""

import dataclasses
import shutil
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rlrun import registry
from rlrun.addons.normalise import normalisers
from rlrun.buffers.ring import Ring
from rlrun.config.schema import RunConfig, parse, run_config
from rlrun.core.addon import Addons
from rlrun.core.agent import Agent
from rlrun.core.evaluation import evaluate as run_episodes
from rlrun.core.loop import Loop
from rlrun.core.parts import Parts
from rlrun.core.random import seed_for, sequence
from rlrun.core.signals import Signals
from rlrun.core.state import Optim
from rlrun.core.trainer import Trainer
from rlrun.engine import accelerate, prepare, products
from rlrun.envs.vector import VectorEnv
from rlrun.errors import ConfigError, RlrunError
from rlrun.rundir import CONFIG, RunDir, provenance, read_config
from rlrun.snapshot.store import Snapshot, Store
from rlrun.telemetry import Telemetry
from rlrun.types import Spec

EVAL_ENVS = 16  # evaluation environments stepped together, at most


@dataclass(frozen=True)
class Result:
    status: str  # done | stopped | failed
    exit_code: int
    summary: dict[str, Any]


def train(config: RunConfig, run: RunDir) -> Result:
    """Start a run in its directory and train it to the end."""
    registry.load(config.plugins)
    loop = build_loop(config)
    if config.init_from:
        start_from(Path(config.init_from), loop)
    loop.begin()
    return supervise(config, run, loop, Store(run.path, config.trainer.snapshot_keep))


def resume(run: RunDir, total_steps: int | None = None) -> Result:
    """Go on from the latest snapshot that is whole, to the recorded end or to `total_steps`."""
    config = with_total_steps(stored_config(run.path), total_steps)
    store = Store(run.path, config.trainer.snapshot_keep)
    snapshot = store.load()
    if snapshot.header["step"] >= config.trainer.total_steps:
        print(f"{run.path} is finished: {snapshot.header['step']:,} of {config.trainer.total_steps:,} steps")
        return Result("done", 0, run.read_json("summary.json"))
    return supervise(config, run, build_loop(config), store, snapshot)


def branch(source: Path, run: RunDir, total_steps: int | None = None) -> Result:
    """Go on from any snapshot of a run, in a directory of its own; the source stays as it is."""
    source_path, name = locate(source)
    config = with_total_steps(stored_config(source_path), total_steps)
    snapshot = Store(source_path).load(name)
    run.write_start(read_config(source_path / CONFIG), [f"branched from {source}"])
    shutil.copyfile(source_path / "metrics.jsonl", run.path / "metrics.jsonl")  # rows after the snapshot are cut
    return supervise(config, run, build_loop(config), Store(run.path, config.trainer.snapshot_keep), snapshot)


def evaluate(
    path: Path, episodes: int, seed: int | None = None, explore: bool = False, env_kwargs: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Episodes of a run's best snapshot (else its latest), or of the snapshot that `path` names."""
    run_path, name = locate(path)
    config = stored_config(run_path)
    env_config = dataclasses.replace(config.env, kwargs=config.env.kwargs | (env_kwargs or {}))
    store = Store(run_path)
    snapshot = store.load(name or ("best" if "best" in store.names() else None))
    device = prepare_device(config)
    env = eval_env(env_config, config.seed if seed is None else seed, "eval", episodes, device)
    try:
        agent, addons = build_agent(config, env.spec, device)
        load_part(agent, snapshot.state, "agent")
        load_part(addons, snapshot.state, "addons")
        addons.eval()
        values = run_episodes(agent, addons, env, episodes, config.trainer.eval_max_steps, explore)
    finally:
        env.close()
    about = {"run": str(run_path), "snapshot": snapshot.name, "step": snapshot.header["step"], "episodes": episodes}
    return about | {key.removeprefix("eval/"): value for key, value in values.items()}


def check(config: RunConfig) -> None:
    """Build everything once and throw it away: raises ConfigError for what training would refuse."""
    registry.load(config.plugins)
    build_loop(config).env.close()


def stored_config(path: Path) -> RunConfig:
    """A run's config. It is data: plug-ins that it names are loaded only if the user names them again."""
    config = run_config(read_config(path / CONFIG))
    missing = [name for name in config.plugins if name not in sys.modules]
    if missing:
        raise ConfigError(f"{path}: was trained with plug-ins; to run their code, add plugins=[{','.join(missing)}]")
    return config


def with_total_steps(config: RunConfig, total_steps: int | None) -> RunConfig:
    if total_steps is None:
        return config
    return dataclasses.replace(config, trainer=dataclasses.replace(config.trainer, total_steps=total_steps))


# --- assembling ------------------------------------------------------------------------------------------------------


def build_loop(config: RunConfig) -> Loop:
    """Environments, agent, add-ons, buffer and loop of a run, weights drawn from the seed."""
    check_ranges(config)
    device = prepare_device(config)
    env = VectorEnv.make(config.env, sequence(config.seed, "env"), device)
    try:
        agent, addons = build_agent(config, env.spec, device)
        buffer_values, loop_values = config.algo.get("buffer"), config.algo["loop"]
        gamma = getattr(agent.cfg, "gamma", 1.0)
        buffer = buffer_values and registry.build(
            "buffer", buffer_values, env.spec, gamma, config.seed, device, path="algo.buffer"
        )
        parts = (agent, addons, env, buffer, config.seed, config.trainer.total_steps)
        loop: Loop = registry.build("loop", loop_values, *parts, path="algo.loop")
    except BaseException:
        env.close()
        raise
    return loop


def build_agent(config: RunConfig, spec: Spec, device: torch.device) -> tuple[Agent, Addons]:
    values = {key: value for key, value in config.algo.items() if key not in ("loop", "buffer")}
    with torch.random.fork_rng(devices=[]), device:
        torch.manual_seed(seed_for(config.seed, "weights"))
        addons = Addons(normalisers(config.env.normalize, spec, values.get("gamma", 0.99)))
        spec = addons.spec(spec)
        parts = Parts(config.seed, device, config.network, spec)
        agent = registry.build("algo", values, spec, parts, path="algo")
    accelerate(agent, config.trainer, device)
    return agent, addons


def check_ranges(config: RunConfig) -> None:
    """Every part's values against its Config, all faults at once."""
    algo = {key: value for key, value in config.algo.items() if key not in ("loop", "buffer")}
    sections = [("algo", algo, "algo"), ("network", config.network, "network")]
    sections += [(part, config.algo[part], f"algo.{part}") for part in ("loop", "buffer") if config.algo.get(part)]
    faults: list[str] = []
    for group, values, path in sections:
        try:
            cls = registry.lookup(group, values["name"])
            parse(cls.Config, {key: value for key, value in values.items() if key != "name"}, path)
        except ConfigError as error:
            faults += error.faults
    if faults:
        raise ConfigError(*faults)


def prepare_device(config: RunConfig) -> torch.device:
    prepare(config.trainer)
    name = config.device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"device={name}: must be auto, cpu, cuda or cuda:<number>") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"device={name}: this machine has {torch.cuda.device_count()} CUDA devices")
    return device


def eval_env(config: Any, seed: int, name: str, episodes: int, device: torch.device) -> Any:
    """Environments for one evaluation, made anew so that nothing carries over from the last."""
    alone = dataclasses.replace(config, num_envs=min(episodes, EVAL_ENVS), backend="sync")
    return VectorEnv.make(alone, sequence(seed, name), device)


# --- supervising -----------------------------------------------------------------------------------------------------


def supervise(config: RunConfig, run: RunDir, loop: Loop, store: Store, snapshot: Snapshot | None = None) -> Result:
    """Train with signals, telemetry and snapshots around; always leaves a summary, whatever happens."""
    step = snapshot.header["step"] if snapshot else 0
    log = Telemetry(run.path, config.logger, config.name, config.trainer.total_steps, step)
    trainer = make_trainer(config, loop, store, log)
    status, code, error = "failed", 1, None
    with Signals() as signals:
        try:
            restore(trainer, loop, snapshot, log)
            run.write_json("meta.json", meta(config, loop))
            status = trainer.run(signals)
            code = signals.exit_code if status == "stopped" else 0
        except Exception as fault:
            error, code = fault, getattr(fault, "exit_code", 1)
            run.error_log(traceback.format_exc())
        finally:
            loop.env.close()
            summary = summarise(trainer, status)
            run.write_json("summary.json", summary)
            log.close(summary)
    if error is not None:
        line = str(error) if isinstance(error, RlrunError) else f"{type(error).__name__}: {error}"
        print(f"error: {line}\n  trace: {run.path / 'error.log'}", file=sys.stderr)
    return Result(status, code, summary)


def make_trainer(config: RunConfig, loop: Loop, store: Store, log: Telemetry) -> Trainer:
    def evaluate_at(step: int) -> dict[str, float]:
        env = eval_env(config.env, config.seed, f"eval.{step}", config.trainer.eval_episodes, loop.env.device)
        try:
            limits = (config.trainer.eval_episodes, config.trainer.eval_max_steps)
            return run_episodes(loop.agent, loop.addons, env, *limits)
        finally:
            env.close()

    def save(name: str, state: dict[str, Any], clocks: dict[str, float]) -> None:
        log.sync()
        header = {"step": loop.steps, "total_steps": config.trainer.total_steps, "algo": config.algo["name"]}
        store.save(name, state, rings(loop), header, clocks)

    return Trainer(config.trainer, loop, log, evaluate_at, save)


def restore(trainer: Trainer, loop: Loop, snapshot: Snapshot | None, log: Telemetry) -> None:
    if snapshot is None:
        return
    for fault in snapshot.faults:
        log.message(f"skipped {fault}")
    trainer.load(dict(snapshot.state), snapshot.clocks)
    for name, ring in rings(loop).items():
        snapshot.restore_ring(name, ring)
    log.message(f"resumed from step {loop.steps:,}, {loop.env.exactness}")


def rings(loop: Loop) -> dict[str, Ring]:
    return {name: module for name, module in loop.named_modules() if isinstance(module, Ring)}


def start_from(path: Path, loop: Loop) -> None:
    """Weights and normaliser statistics of another run's snapshot; optimisers and random streams start fresh."""
    run_path, name = locate(path)
    snapshot = Store(run_path).load(name)
    fresh = {f"{name}." for name, module in loop.named_modules() if isinstance(module, Optim)}
    kept = {
        key: value
        for key, value in snapshot.state.items()
        if not key.endswith("_extra_state") and not any(key.startswith(prefix) for prefix in fresh)
    }
    load_part(loop.agent, kept, "agent", strict=False)
    load_part(loop.addons, kept, "addons", strict=False)


def load_part(module: torch.nn.Module, state: dict[str, Any], prefix: str, strict: bool = True) -> None:
    own = {key.removeprefix(f"{prefix}."): value for key, value in state.items() if key.startswith(f"{prefix}.")}
    try:
        module.load_state_dict(own, strict=strict)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise ConfigError(f"the snapshot's {prefix} does not fit this config: {reason}") from None


def locate(path: Path) -> tuple[Path, str | None]:
    """The run directory and snapshot name that a path means: RUN, or RUN/snapshots/<name>."""
    return (path.parent.parent, path.name) if path.parent.name == "snapshots" else (path, None)


def meta(config: RunConfig, loop: Loop) -> dict[str, Any]:
    return provenance() | {
        "device": str(loop.env.device),
        "threads": torch.get_num_threads(),
        "engine": config.trainer.engine,
        "precision": config.trainer.precision,
        "products": products.choose(),
        "env_state": loop.env.method,
        "resume": loop.env.exactness,
    }


def summarise(trainer: Trainer, status: str) -> dict[str, Any]:
    progress, loop, seconds = trainer.progress, trainer.loop, trainer.elapsed()
    return {
        "status": status, "step": loop.steps, "total_steps": trainer.cfg.total_steps,
        "final_return": progress.final_return, "best_return": progress.best_return, "best_step": progress.best_step,
        "wall_s": round(seconds, 3), "steps_per_s": round(loop.steps / max(seconds, 1e-9), 1),
    }  # fmt: skip
