"""Trains every preset at an older commit and now, and compares bit for bit: `scripts/same_bits REV [WORD ...]`.

Each preset is trained by the code of both commits, with `trainer.engine` eager and auto. An algorithm without a preset
is trained in the first environment of `ENVS` that it supports. Log rows and the last snapshots are compared. Settings
such as `env.backend=async` hold for every run; with `env=NAME`, algorithms are trained in this environment, without
their presets. With `--resume`, the run of this code is paused at half of its steps and resumed, the older one is not.

Both commits are used only through their command line and their run folders. Networks, batch sizes and most other
hyperparameters keep their values. Settings that make a run long are limited, see `LARGEST` and `limits`: environments,
episodes per update, updates per step, steps between target updates, warm-up, rollouts, replay capacity, search
simulations and evaluations. If an algorithm needs a data set, the older commit records it.
"""

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, NamedTuple

import yaml

from bits.run_difference import run_difference
from rlrun import dotted
from rlrun.config import sources
from rlrun.errors import ConfigError, RlrunError, nearest, printable
from rlrun.formats import history
from rlrun.rundir import METRICS
from rlrun.telemetry.metrics import read_rows

ROOT = Path(__file__).parents[2]
SERVER = Path(__file__).with_name("command_server.py")
ENGINES = ("eager", "auto")
# environments for algorithms without a preset, which take the first one that they support
ENVS = ("CartPole", "Pendulum", "FrozenLake", "BernoulliBandit", "LinearBandit")
BAD_INPUT = 2  # exit code
MISSING_EXTRA = "pip install"  # part of the error if an environment is not installed

LARGEST: dict[str, float] = {  # maximum values of config keys
    "env.num_envs": 16,
    "algo.loop.updates_per_step": 0.1,
    "algo.loop.episodes": 2,
    "algo.exploration_episodes": 2,
    "algo.buffer.capacity": 10_000,
    "algo.search.num_simulations": 8,
    "algo.target_every": 50,
    "trainer.eval_episodes": 2,
    "trainer.eval_max_steps": 200,
}
FIXED: dict[str, Any] = {
    "device": "cpu",
    "logger.console": False,
    "logger.tensorboard": False,
    "trainer.snapshot_every": 0,
}
FIRST_COMMAND = (
    "train", "algo=nop", "env=CartPole", "trainer.total_steps=1", "trainer.eval_episodes=0", "env.selftest=off",
    "logger.console=false", "logger.tensorboard=false", "run_dir=first",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A preset, or an algorithm without one."""

    name: str
    algo: str
    preset: str  # value of the setting `preset`
    envs: tuple[str, ...]  # environments, tried in this order until one is supported
    file: str  # YAML file that defines the case

    @classmethod
    def of_preset(cls, name: str) -> "Case":
        """Returns the case of a preset `<algo>-<env>`."""
        algo, _, env = name.partition("-")
        return cls(name, algo, name, (env,), f"conf/preset/{name}.yaml")

    @classmethod
    def of_algo(cls, name: str, envs: tuple[str, ...] = ENVS) -> "Case":
        """Returns the case of an algorithm without a preset."""
        return cls(name, name, "none", envs, f"conf/algo/{name}.yaml")


class Done(NamedTuple):
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def line(self) -> str:
        """The first line `error: ...` in stderr, or else the last line of stderr."""
        lines = self.err.splitlines()
        for line in lines:
            if line.startswith("error: "):
                return printable(line.removeprefix("error: "))
        return printable([*lines[-1:], f"exit code {self.code}"][0])


@dataclass(frozen=True)
class Result:
    """The result of a case with one engine, printed as one line."""

    case: Case
    engine: str
    word: str  # equal | new | skipped | DIFFERS | REFUSED | FAILED
    detail: str = ""

    @property
    def is_good(self) -> bool:
        return self.word.islower()

    def __str__(self) -> str:
        return f"{self.case.name:32} {self.engine:6} {self.word:8} {self.detail}".rstrip()


class Tree:
    """Runs rlrun commands with the code of one commit, in the directory `folder`, one at a time."""

    def __init__(self, root: Path, folder: Path):
        self.root, self.folder = root, folder
        folder.mkdir()
        environment = os.environ | {"PYTHONPATH": str(root / "src"), "OMP_NUM_THREADS": "1"}
        environment |= {name: str(folder / name) for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME")}
        # -P: import nothing from the folder of the script
        server = [sys.executable, "-P", str(SERVER), *FIRST_COMMAND]
        self.process = subprocess.Popen(
            server, env=environment, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> "Tree":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.process.communicate()

    def run(self, *words: str) -> Done:
        """Runs one rlrun command. Raises RlrunError if the server process has ended."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(words) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise RlrunError(f"{self.root}: its commands cannot be run")
        return Done(**json.loads(answer))


class DataSets:
    """Data sets for algorithms that need one, recorded when they are first needed.

    Each holds the episodes of a PPO policy after one update.
    """

    def __init__(self, folder: Path):
        self.folder, self.lock = folder, Lock()

    def recorded(self, tree: Tree, env: str) -> str:
        """Returns the folder of an environment's data set, after recording it if necessary. Raises RlrunError if it
        cannot be recorded."""
        run, path = self.folder / env, self.folder / f"{env}-v0"
        with self.lock:
            if not path.exists():
                words = ["algo=ppo", f"env={env}", "preset=none", "total_steps=1", f"run_dir={run}", *settings(FIXED)]
                for command in (["train", *words], ["eval", str(run), "explore=true", f"record={path}"]):
                    done = tree.run(*command)
                    if done.code:
                        raise RlrunError(f"no data set of {env} can be recorded: {done.line}")
        return str(path)


@dataclass(frozen=True)
class Comparison:
    """Compares cases between two commits."""

    before: Tree
    now: Tree
    data: DataSets
    steps: int
    words: Sequence[str] = ()  # settings of every run
    resume: bool = False  # whether the runs of `now` are paused and resumed

    def result(self, case: Case, engine: str) -> Result:
        """Trains a case with both commits, at the same time, and compares the runs."""
        if not (self.before.root / case.file).exists():
            return Result(case, engine, "new", "missing at the older commit")
        with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
            runs = Path(folder) / "before", Path(folder) / "now"
            training = [
                pool.submit(self.trained, tree, case, engine, run)
                for tree, run in zip((self.before, self.now), runs, strict=True)
            ]
            before, now = (one.result() for one in training)
            if MISSING_EXTRA in before.line and MISSING_EXTRA in now.line:
                return Result(case, engine, "skipped", now.line)
            for done, where in ((before, "at the older commit: "), (now, "")):
                if done.code == BAD_INPUT:
                    return Result(case, engine, "REFUSED", f"{where}{done.line}")
                if done.code:
                    return Result(case, engine, "FAILED", f"{where}{done.line}")
            difference = run_difference(*runs)
            rows = read_rows(runs[1] / METRICS)
        if difference:
            return Result(case, engine, "DIFFERS", difference)
        if not any(row.get("time/updates_per_s") for row in rows):
            return Result(case, engine, "equal", "but the run was too short for an update; use more --steps")
        return Result(case, engine, "equal")

    def trained(self, tree: Tree, case: Case, engine: str, run: Path) -> Done:
        """Trains a case in the first environment that the commit supports. Returns the result of the command."""
        for env in case.envs:
            words = [f"algo={case.algo}", f"env={env}", f"preset={case.preset}", *self.words]
            composed = tree.run("train", "--cfg", "job", *words)
            if composed.code:
                return composed
            values = yaml.safe_load(composed.out)
            given = limits(values, self.steps) | {"trainer.engine": engine}
            if dotted.lookup("algo.loop.data", values) is None:
                given["algo.loop.data"] = self.data.recorded(self.before, env)
            if self.resume and tree is self.now:
                given["trainer.stop_at"] = max(1, self.steps // 2)
            limited = [word for word in settings(given, values) if key_of(word) not in map(key_of, self.words)]
            done = tree.run("train", *words, *limited, f"run_dir={run}")
            if self.resume and tree is self.now and not done.code:
                plugins = [word for word in self.words if key_of(word) == "plugins"]
                done = tree.run("resume", str(run), *plugins)
            if done.code != BAD_INPUT:
                break
        return done


def limits(values: dict[str, Any], steps: int) -> dict[str, Any]:
    """Returns settings that make a run of `steps` steps short, by the current names of their keys."""
    algo = values["algo"]["name"]
    envs = int(min(found(values, "env.num_envs", algo), LARGEST["env.num_envs"]))
    largest = LARGEST | {
        "algo.loop.warmup_steps": steps // 4,
        "algo.loop.min_steps": steps // 4,
        "algo.loop.online_after": steps // 4,
        "algo.loop.rollout_steps": max(1, steps // 4 // envs),
    }
    given = FIXED | {"trainer.total_steps": steps, "trainer.log_every": max(1, steps // 20)}
    given |= {"trainer.eval_every": max(1, steps // 2)}
    for key, most in largest.items():
        value = found(values, key, algo)
        if isinstance(value, int | float) and value > most:
            given[key] = most
    return given


def found(values: dict[str, Any], key: str, algo: str) -> Any:
    """Returns the value of a key, given by its current name, in a commit's config, or ABSENT."""
    return dotted.lookup(name_of(key, values, algo), values)


def name_of(key: str, values: dict[str, Any], algo: str) -> str:
    """Returns the name that a key, given by its current name, has in the commit's config `values`."""
    for name in (key, *history.former_keys(key, algo)):
        if dotted.lookup(name, values) is not dotted.ABSENT:
            return name
    return key


def settings(given: dict[str, Any], values: dict[str, Any] | None = None) -> list[str]:
    """Returns the settings as `key=value` words, with the names of keys in the commit's config `values`, if given."""
    if values is not None:
        given = {name_of(key, values, values["algo"]["name"]): value for key, value in given.items()}
    return [f"{key}={dotted.show(value)}" for key, value in given.items()]


def key_of(word: str) -> str:
    """Returns the key of a word `key=value`."""
    return word.partition("=")[0]


def cases(names: Sequence[str], envs: tuple[str, ...] = ()) -> list[Case]:
    """Returns all cases, or those of the presets and algorithms in `names`. Raises ConfigError for unknown names.

    envs: environments of algorithms, which then have no presets.
    """
    presets = []
    if not envs:
        presets = [Case.of_preset(name) for name in sources.options("preset", [sources.CONF])]
    tuned = {case.algo for case in presets}
    untuned = [name for name in sources.options("algo", [sources.CONF]) if name not in tuned]
    algos = [Case.of_algo(name, envs or ENVS) for name in untuned]
    known = [*presets, *algos]
    names_of_cases = {case.name for case in known} | tuned
    faults = []
    for name in names:
        if name not in names_of_cases:
            faults.append(f"{name}: not a preset or an algorithm{nearest(name, names_of_cases)}")
    if faults:
        raise ConfigError(*faults)
    return [case for case in known if not names or {case.name, case.algo} & {*names}]


def extract(rev: str, folder: Path) -> None:
    """Extracts the files of a commit into a folder. Raises ConfigError if there is no such commit."""
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", f"{rev}^{{commit}}"], capture_output=True, check=False)
    if archive.returncode:
        raise ConfigError(f"{rev}: {archive.stderr.decode(errors='replace').strip()}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")


def compared(rev: str, chosen: Sequence[Case], engines: Sequence[str], pairs: int, **options: Any) -> Iterator[Result]:
    """Yields the results of all cases and engines in order. Computes `pairs` of them at the same time.

    options: the other fields of a `Comparison`.
    """
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        extract(rev, scratch / "commit")
        data = DataSets(scratch / "data")
        free = []
        for number in range(pairs):
            before = stack.enter_context(Tree(scratch / "commit", scratch / f"before-{number}"))
            now = stack.enter_context(Tree(ROOT, scratch / f"now-{number}"))
            free.append(Comparison(before, now, data, **options))

        def result(case: Case, engine: str) -> Result:
            pair = free.pop()
            try:
                return pair.result(case, engine)
            finally:
                free.append(pair)

        work = [(case, engine) for case in chosen for engine in engines]
        with ThreadPoolExecutor(pairs) as pool:
            yield from pool.map(result, *zip(*work, strict=True))


def count(text: str) -> int:
    """Parses a whole number of at least 1. Raises argparse.ArgumentTypeError for any other text."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be a whole number, at least 1")
    return int(text)


def main(words: Sequence[str] | None = None) -> int:
    """Prints the table of results. Returns 0 if nothing differs, is refused or fails, else 1; 2 for bad input."""
    # without usage, so that an error is one line
    parser = argparse.ArgumentParser("scripts/same_bits", argparse.SUPPRESS, __doc__.splitlines()[0])
    parser.add_argument("rev", help="the older commit")
    parser.add_argument("words", nargs="*", help="presets or algorithms, default: all; settings of every run")
    parser.add_argument("--steps", type=count, default=2000, help="steps of each run (%(default)s)")
    parser.add_argument("--engine", choices=ENGINES, help="use only this engine instead of both")
    parser.add_argument("--resume", action="store_true", help="pause and resume the runs of this code")
    cores = os.cpu_count() or 1
    parser.add_argument("--pairs", type=count, default=max(1, cores // 2), help="cases at a time, on two cores each")
    options = parser.parse_intermixed_args(words)
    engines: Sequence[str] = ENGINES
    if options.engine:
        engines = [options.engine]
    names = [word for word in options.words if "=" not in word]
    envs = tuple(word.removeprefix("env=") for word in options.words if key_of(word) == "env")
    given = [word for word in options.words if "=" in word and key_of(word) != "env"]
    results = []
    try:
        for result in compared(
            options.rev,
            cases(names, envs),
            engines,
            options.pairs,
            steps=options.steps,
            words=given,
            resume=options.resume,
        ):
            print(result, flush=True)
            results.append(result)
    except RlrunError as error:
        for fault in error.faults:
            print(f"error: {fault}", file=sys.stderr)
        return error.exit_code
    bad = sum(not result.is_good for result in results)
    print(f"{len(results)} compared with {options.rev}, {bad} not equal")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
