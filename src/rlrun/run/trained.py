"""Restores a trained agent from a run, with environments to evaluate it. The run may be untrusted."""

import dataclasses
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from rlrun import dotted, files, imports
from rlrun.config import resumable
from rlrun.config.resumable import Recorded, changed
from rlrun.config.schema import RunConfig, run_config
from rlrun.config.stored import CONFIG, parse_config, read_config, read_text
from rlrun.core.addon import Addons
from rlrun.core.agent import Agent
from rlrun.envs.config import EnvConfig
from rlrun.envs.making.passed import check_same, passed
from rlrun.envs.same_spaces import described, difference
from rlrun.envs.stepping.vector import VectorEnv
from rlrun.errors import ConfigError, RlrunError, SnapshotError, printable, quoted, reason
from rlrun.imports import module_of, typed_again
from rlrun.run.assemble import build_agent, check_requirements, eval_env, prepare_device
from rlrun.run.data import TABLE, check_stored_data, check_stored_sources
from rlrun.run.evaluation import EpisodeResult, play, summary
from rlrun.run.untrusted import check_environment
from rlrun.run.weights import load_acting, locate
from rlrun.rundir import RunDir
from rlrun.snapshot.loaded import Snapshot
from rlrun.snapshot.store import Store
from rlrun.types import Batch, Objective, Spec

ENV_KWARGS = "env.kwargs."


@dataclass(frozen=True)
class Trained:
    """An agent with the weights of a snapshot, and environments for its episodes."""

    path: Path  # folder of the run
    config: RunConfig
    snapshot: Snapshot
    env: VectorEnv
    agent: Agent
    addons: Addons


class Watch(Protocol):
    """Sees the episodes of an evaluation."""

    def begin(self, trained: Trained) -> None:
        """Called before the first episode."""

    def acted(self, extras: Batch) -> None:
        """Called with the extras of every action."""


@contextmanager
def restored(
    path: Path,
    episodes: int,
    seed: int | None,
    words: Mapping[str, object],
    in_this_process: bool = False,
    changes: Mapping[str, object] | None = None,
) -> Iterator[Trained]:
    """As a context manager, restores the agent from a snapshot and closes its environments at the end.

    path: a snapshot, or a run, whose best snapshot is used, or the latest if it has no best snapshot.
    words: settings that the user typed, `env.kwargs.<key>` and `env.timeout_s`.
    in_this_process: step the environments in this process even if training used workers.
    changes: settings that a resumed run may change, such as `device`.
    """
    run_path, name = locate(path)
    config = stored_config(run_path, changes)
    for code in imports.changed(RunDir.meta_of(run_path).get("code", {})):
        print(printable(f"{run_path}: {code} has changed since this run began"), file=sys.stderr)
    store = Store(run_path)
    snapshot = store.load(name or store.preferred())
    check_unchanged(run_path, snapshot)
    if TABLE not in words:  # a table that the user typed needs no check
        check_stored_data(config, snapshot.header.get("data"), "evaluate")
    with built_from(run_path):
        env_config = eval_config(config.env, words)
        if env_config.backend == "ray":  # the results are the same without the cluster of the run
            env_config = dataclasses.replace(env_config, backend="async")
        if in_this_process and env_config.backend == "async":
            env_config = dataclasses.replace(env_config, backend="sync")
        config = dataclasses.replace(config, env=env_config)
        device = prepare_device(config)
        if seed is None:
            seed = config.seed
        env = eval_env(config, seed, "eval", episodes, device)
    try:
        check_spaces(str(run_path), run_path, env.spec)
        with built_from(run_path):
            check_requirements(config)
            agent, addons = build_agent(config, env.spec, device)
        load_acting(agent, addons, snapshot.state)
        yield Trained(run_path, config, snapshot, env, agent, addons)
    finally:
        env.close()


def evaluate(
    path: Path,
    episodes: int,
    seed: int | None = None,
    explore: bool = False,
    words: Mapping[str, object] | None = None,
    watch: Watch | None = None,
) -> dict[str, Any]:
    """Evaluates a snapshot and returns the statistics of its episodes. path, words: as in `restored`.

    watch: sees the episodes; with it, the environments are in this process.
    """
    with restored(path, episodes, seed, words or {}, in_this_process=watch is not None) as trained:
        played = (trained.agent, trained.addons, trained.env, episodes, explore)
        if watch is None:
            results = play(*played)
        else:
            results = play(*played, watch=partial(watch.begin, trained), acted=watch.acted)
        objective = trained.addons.spec_after(trained.env.spec).objective
    snapshot = trained.snapshot
    about = {"run": str(trained.path), "snapshot": snapshot.name, "step": snapshot.step, "episodes": episodes}
    return about | figures(results, objective)


def eval_config(env: EnvConfig, words: Mapping[str, Any]) -> EnvConfig:
    """Returns the environment config of `rlrun eval`, with the settings that the user typed.

    Raises ConfigError if an untrusted config must not create this environment.
    """
    typed = {key.removeprefix(ENV_KWARGS): value for key, value in words.items() if key.startswith(ENV_KWARGS)}
    timeout_s = words.get("env.timeout_s", env.timeout_s)
    env = dataclasses.replace(env, eval_kwargs=env.eval_kwargs | typed, timeout_s=timeout_s)
    approved = {f"env.eval_kwargs.{key}": value for key, value in typed.items()}
    check_environment(env, {**words, **approved}, evaluation_only=True)
    return env


def figures(results: list[EpisodeResult], objective: Objective | None) -> dict[str, object]:
    """Returns the results that `rlrun eval` prints: statistics of the episodes, and the return and length of each."""
    found: dict[str, object] = {key.removeprefix("eval/"): value for key, value in summary(results, objective).items()}
    returns, lengths, _, returned, _ = zip(*results, strict=True)
    found["returns"] = list(returns)
    if objective:
        for i, component in enumerate(zip(*returned, strict=True)):
            found[f"returns_{i}"] = list(component)
    found["lengths"] = list(lengths)
    return found


def stored_config(path: Path, changes: Mapping[str, object] | None = None, typed: bool = False) -> RunConfig:
    """Returns the config of a run, with `changes` applied.

    The config may be untrusted, so it causes no imports and no downloads. Modules that it names must already be
    imported, because the user typed them or they are installed plug-ins; otherwise raises ConfigError.
    typed: the user typed the same config on this command line.
    """
    files.check_folder(path)
    values, filled, _ = parse_config(read_text(path / CONFIG), path / CONFIG)
    values = changed(values, changes or {})
    if not typed:
        check_stored_sources(values)
    try:
        config = run_config(values)
    except ConfigError as error:  # only the first fault is shown: a truncated config would give one for each key
        fault = error.faults[0]
        if len(error.faults) > 1:
            fault += f" (and {len(error.faults) - 1} more faults)"
        raise ConfigError(f"{path / CONFIG}: {fault}") from None
    if filled:
        line = f"{path / CONFIG} has an earlier format; added settings: {', '.join(filled)}"
        print(printable(line), file=sys.stderr)
    module = module_of(config.env.id)
    named = [*config.plugins]
    if module is not None:
        named.append(module)
    found = {reference: typed_again(reference) for reference in named}
    if None in found.values():
        again = ",".join(usable or reference for reference, usable in found.items())
        word = f"plugins=[{again}]"
        raise ConfigError(f"{path}: needs code of its own; if you trust it, add {quoted(word)}")
    if module is not None:  # the file may have moved since the run was trained
        name = config.env.id.rpartition(":")[2]
        env = dataclasses.replace(config.env, id=f"{found[module]}:{name}")
        config = dataclasses.replace(config, env=env)
    return config


def passed_again(path: Path, env: object) -> AbstractContextManager[str | None]:
    """Returns the context manager `passed` for an environment of the run (or of the snapshot) at `path`."""
    if env is not None:
        folder, _ = locate(path)
        check_same(env, str(dotted.lookup("env.id", read_config(folder / CONFIG))))
    return passed(env)


@contextmanager
def built_from(path: Path) -> Iterator[None]:
    """As a context manager, turns any exception while parts are built from a stored config into a ConfigError."""
    try:
        yield
    except RlrunError:
        raise
    except Exception as error:
        raise ConfigError(f"{path / CONFIG}: nothing can be built from it ({reason(error, located=True)})") from error


def check_spaces(source: str, run: Path, spec: Spec) -> None:
    """Raises ConfigError, which names `source`, if a run was trained with other spaces than those of `spec`.

    Runs of earlier versions, which did not record their spaces, pass.
    """
    differs = difference(RunDir.meta_of(run).get("spaces"), described(spec))
    if differs:
        raise ConfigError(f"{source}: {differs}")


def check_unchanged(run: Path, snapshot: Snapshot) -> None:
    """Raises ConfigError if the run's config was edited since the snapshot was taken.

    Raises SnapshotError if the snapshot does not record the config.
    """
    match snapshot.header:
        case {"config": str(config), "overrides": str(overrides)}:
            resumable.check_unchanged(run, Recorded(config, overrides))
        case _:
            raise SnapshotError(f"{snapshot.name}: does not record the config of its run")
