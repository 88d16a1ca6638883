"""The Python API of rlrun: train, resume and evaluate a run, and load its policy. `import rlrun` provides it."""

import signal
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from rlrun.cli import settings
from rlrun.cli.evaluate import RULES as EVALUATE_RULES
from rlrun.cli.resume import RULES as RESUME_RULES
from rlrun.config import check, sources
from rlrun.config.compose import literal
from rlrun.config.jobs import jobs
from rlrun.config.stored import CONFIG, read_config
from rlrun.envs.making.passed import passed
from rlrun.errors import ConfigError, RunError
from rlrun.report import runs as report
from rlrun.run import trained
from rlrun.run.job import Done, reset_run, resume_run, train_job
from rlrun.run.plain_env import stored_env
from rlrun.run.policy import Policy, load
from rlrun.run.replayed import stored_replay
from rlrun.run.signals import CODES
from rlrun.rundir import METRICS, RunDir
from rlrun.settings import registry
from rlrun.telemetry.metrics import read_rows

CELLS = 100_000_000  # of a data frame of metrics, which need about 2 GiB

__all__ = ["Evaluation", "Policy", "Run", "evaluate", "load", "runs", "train"]


@dataclass(frozen=True)
class Run:
    """The folder of a run: `rlrun.Run("runs/sac-Pendulum/...")`."""

    path: Path

    def __init__(self, path: str | Path):
        object.__setattr__(self, "path", Path(path))

    @property
    def summary(self) -> dict[str, Any]:
        """The content of summary.json: status, step, final_return, best_return, wall_s and more."""
        return RunDir.summary_of(self.path)

    @property
    def config(self) -> dict[str, Any]:
        """The config of the run, with all values, as nested dicts: `run.config["algo"]["gamma"]`."""
        return read_config(self.path / CONFIG)

    @property
    def rows(self) -> list[dict[str, float]]:
        """The rows of metrics.jsonl in order, as dicts; none if the file does not exist."""
        if not (self.path / METRICS).exists():
            return []
        return read_rows(self.path / METRICS)

    @property
    def metrics(self) -> Any:
        """The rows of metrics.jsonl as a pandas data frame indexed by `step`, or as `rows` if pandas is missing.

        Raises ConfigError if a frame of all keys would have more than `CELLS` cells.
        """
        if find_spec("pandas") is None:
            return self.rows
        import pandas

        rows = self.rows
        if not rows:
            return pandas.DataFrame(columns=["step"]).set_index("step")
        keys = len(set().union(*rows))
        if len(rows) * keys > CELLS:
            why = f"{len(rows):,} rows with {keys:,} different keys do not fit into a data frame; read `rows`"
            raise ConfigError(f"{self.path / METRICS}: {why}")
        return pandas.DataFrame(rows).set_index("step")

    def resume(self, *words: str, env: object = None, **changes: object) -> "Run":
        """Continues the run, as `rlrun resume` does with the same words: `run.resume(total_steps=200_000)`.

        env: the environment object or class, if the run was trained with one.
        Raises ConfigError, SnapshotError, RunError if the run failed, and KeyboardInterrupt if Ctrl-C stopped it.
        """
        changed = _changes(words, changes, RESUME_RULES)
        plugins = changed.pop("plugins", ())
        into = changed.pop("into", None)
        with trained.passed_again(self.path, env):
            done = resume_run(self.path, changed, plugins, into)
        return _ended(done)

    def reset(self, *words: str, into: str | Path, env: object = None, **changes: object) -> "Run":
        """Starts a new run in a new folder with the config and the latest weights of this one, as `rlrun reset` does.

        For example, `run.reset(into="second", seed=1)`. An algorithm whose iterations are whole runs calls it once for
        each iteration. env, errors: as in `resume`.
        """
        changed = _changes(words, changes, RESUME_RULES | {"seed": settings.WHOLE})
        plugins = changed.pop("plugins", ())
        with trained.passed_again(self.path, env):
            done = reset_run(self.path, changed, str(into), plugins)
        return _ended(done)

    def load(self, env: object = None, plugins: tuple[str, ...] = ()) -> Policy:
        """Returns the policy of the run, as `rlrun.load` does."""
        return load(self.path, plugins, env)

    def make_env(
        self,
        num_envs: int | None = None,
        render_mode: str | None = None,
        env: object = None,
        plugins: tuple[str, ...] = (),
    ) -> gym.Env | gym.vector.VectorEnv:
        """Returns a new environment with the id, the arguments and the wrappers of the run, as in its evaluations.

        num_envs: the number of environments of a gymnasium.vector.VectorEnv; None: a single gymnasium.Env.
        env, plugins: as in `load`. Observations may be float64, which policies take too, although they are float32 in
        `policy.observation_space`. Raises ConfigError, also for an environment that only exists as a simulator of
        tensors.
        """
        registry.load(plugins)
        with trained.passed_again(self.path, env):
            return stored_env(self.path, num_envs, render_mode)

    def replay(self, env: object = None, plugins: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
        """Returns the replay buffer of the latest snapshot: arrays [steps, ...] by name, oldest first.

        The names are those of `rlrun.types.Transition`: `obs`, `action`, `reward`, `terminated`, `truncated`,
        `next_obs`, `weight` (0 for a row that is no step), and what the agent stores besides. Observations and rewards
        are not normalised, and actions are those of the environment. With several environments, their rows of the same
        step follow each other. Images are stored once, with the step that begins with them: of an episode that has
        terminated, the last `next_obs` has an image of the next episode, and the newest step is missing.

        env, plugins: as in `load`. Raises ConfigError if the algorithm has no replay buffer.
        """
        registry.load(plugins)
        with trained.passed_again(self.path, env):
            return stored_replay(self.path)

    def evaluate(
        self,
        episodes: int = 10,
        seed: int | None = None,
        explore: bool = False,
        env: object = None,
        plugins: tuple[str, ...] = (),
    ) -> "Evaluation":
        """Evaluates the run, as `rlrun.evaluate` does."""
        return evaluate(self.path, episodes, seed, explore, env, plugins)


def runs(*words: str, folder: str | Path = "runs") -> list[Run]:
    """Returns the runs at or below a folder, as `rlrun status` lists them, that have the settings of all words.

    words: such as "algo=ppo", "env=CartPole", "algo.gamma=0.9". A folder that cannot be read as a run gives a warning.
    Raises ConfigError if there is no such folder, or if no run has a key of the words.
    """
    if not Path(folder).is_dir():
        raise ConfigError(f"{folder}: no such folder")
    found, skipped = report.read([Path(folder)])
    for other in skipped:
        warnings.warn(f"skipped {other.path}: {other.reason}", stacklevel=2)
    for word in _checked(words):
        if found and all(run.has(word) is None for run in found):
            raise ConfigError(f"{word}: no run in {folder} has this key")
    return [Run(run.path) for run in found if all(run.has(word) for word in words)]


@dataclass(frozen=True)
class Evaluation:
    """The result of an evaluation. `values` holds everything that `rlrun eval` prints as JSON."""

    return_mean: float
    return_std: float
    length_mean: float
    returns: list[float] = field(repr=False)  # [episodes], in the order in which episodes ended
    lengths: list[int] = field(repr=False)  # [episodes], in environment steps
    values: Mapping[str, Any] = field(repr=False)


def train(*words: str, env: object = None, config_dir: str | Path | None = None, **values: object) -> Run:
    """Trains one run, as `rlrun train` does with the same words: `train("algo=sac", "env=Pendulum", seed=1)`.

    env: the name of an environment; or a subclass of gymnasium.Env, a function that returns an environment, or an
    environment, which is copied for each one that the run needs. A run with such an environment can only be continued
    with `run.resume(env=...)`, and evaluated or loaded with the argument `env`.
    config_dir: a folder with further YAML files, as for `rlrun train --config-dir`.
    values: further settings; text is taken literally.
    Raises ConfigError, with one line per fault, RunError if the run failed, and KeyboardInterrupt if Ctrl-C stopped it.
    """
    with passed(env) as id:
        if id is not None:
            values["env"] = id
        typed = [f"{key}={literal(value)}" for key, value in _plain(values).items()]
        if config_dir is not None:
            typed.append(f"{sources.CONFIG_DIR}={config_dir}")
        (job,) = jobs([*_checked(words), *typed])
        done = train_job(job)
    return _ended(done)


def evaluate(
    run: Run | str | Path,
    episodes: int = 10,
    seed: int | None = None,
    explore: bool = False,
    env: object = None,
    plugins: tuple[str, ...] = (),
) -> Evaluation:
    """Evaluates the best snapshot of a run, or its latest if it has no best snapshot, as `rlrun eval` does.

    run: a run, its folder, or the folder of a snapshot. seed: of the environments; by default that of the run.
    explore: act as in training. env: as in `train`. plugins: modules that the run was started with.
    Raises ConfigError and SnapshotError.
    """
    if isinstance(run, Run):
        path = run.path
    else:
        path = Path(run)
    given = {"episodes": episodes, "explore": explore, "plugins": plugins}
    if seed is not None:
        given["seed"] = seed
    settings.read((), EVALUATE_RULES, values=_plain(given))
    registry.load(plugins)
    with trained.passed_again(path, env):
        values = trained.evaluate(path, episodes, seed, explore)
    chosen = ("return_mean", "return_std", "length_mean", "returns", "lengths")
    return Evaluation(**{name: values[name] for name in chosen}, values=values)


def _plain(value: object) -> Any:
    """Returns a value without paths, tuples and numbers of numpy, which a config cannot hold."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, np.generic):
        return value.item()
    return value


def _changes(
    words: Sequence[str], values: Mapping[str, object], rules: Mapping[str, settings.ValueRule]
) -> dict[str, Any]:
    """Returns the settings that the arguments of a call change, by dotted key."""
    _, changed = settings.read(_checked(words), rules, open_keys="*", values=_plain(values))
    return {check.full_key(key, value): value for key, value in changed.items()}


def _checked(words: Sequence[str]) -> Sequence[str]:
    """Returns the words of a call. Raises ConfigError if one is not text."""
    for word in words:
        if not isinstance(word, str):
            raise ConfigError(f"{word!r}: is no text such as 'algo=sac'; pass an environment with env=...")
    return words


def _ended(done: Done) -> Run:
    """Returns the run of a training that has ended. Raises RunError if it failed, KeyboardInterrupt after Ctrl-C."""
    if done.exit_code == CODES[signal.SIGINT]:
        raise KeyboardInterrupt
    run = Run(done.path)
    if done.exit_code:
        reason = f": {done.fault}" if done.fault else ""
        raise RunError(f"{run.path}: {run.summary.get('status')}, exit code {done.exit_code}{reason}")
    return run
