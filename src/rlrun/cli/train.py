"""`rlrun train`: compose and check all jobs first, then run a single job or a sweep."""

import argparse
import os
import shlex
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from rlrun.cli.forms import check_form
from rlrun.errors import ConfigError, RlrunError, printable
from rlrun.run.signals import CODES

if TYPE_CHECKING:
    from pathlib import Path

    from rlrun.cluster.submission import Submission
    from rlrun.config.jobs import Job

HELP = """\
usage: rlrun train algo=<name> env=<name> [key=value ...]

  algo, env            the algorithm and the environment (rlrun list algo, rlrun list env, or any Gymnasium id)
  network, trainer     other config groups (rlrun list)
  algo.buffer=<name>   parts of an algorithm: algo.buffer, algo.critic, algo.entropy, ... (rlrun list)
  preset=none          do not use the values tuned for this algo and env; preset=<name or file.yaml>: use that
  submit=slurm         submit the run as a job and return: slurm, ray; with -m also submit=local, several runs at a time
                       (rlrun show submit=slurm: partition, time, ...)
  a.b=value            set any key that `rlrun show algo=<name> env=<name>` prints
  plugins=[package]    import your own algorithms, networks and environments; a path works too: plugins=[./my_file.py]
  env=./my_env.py:MyEnv, algo=./my_algo.py, network=./my_net.py: one of your own, in one file

  -m, --multirun       run a job for each combination of values: seed=0,1,2  algo.gamma=0.9,0.99  'seed=range(5)'
  --dry-run            print sizes, memory, disk space and time of the run instead of training; write nothing
  -c, --cfg job        print the config instead of training (hydra: Hydra's own config, all: both)
  -p, --package KEY    with --cfg: print only this section
  -i, --info [WHAT]    print information from Hydra: defaults, defaults-tree, searchpath, plugins, config
  --config-dir DIR     search this folder for YAML files too
  --hydra-help         print the help for Hydra's own options, such as launchers

  rlrun train algo=sac env=HalfCheetah seed=1
  rlrun train -m algo=sac env=HalfCheetah,Hopper seed=0,1,2

exit codes: 0 success, 1 a run failed, 2 bad input, 3 unusable snapshot, 130 stopped by Ctrl-C, 143 by another signal"""

OPTIONS = ("--multirun", "--dry-run", "--cfg", "--package", "--info", "--config-dir", "--hydra-help")


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises ConfigError instead of printing its usage and exiting."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message} (rlrun train --help)")


def train(args: Sequence[str]) -> int:
    """Runs the command. Returns the exit code."""
    options = _options(args)
    if options.help:
        print(HELP)
        return 0
    from rlrun.config import loggers
    from rlrun.config.jobs import jobs

    submission, options.overrides = _submission(options.overrides)
    hydra_overrides = [override for override in options.overrides if override.startswith(("hydra.", "hydra/"))]
    if options.hydra_help:
        return _ask_hydra(hydra_overrides, options)
    if options.info or options.cfg in ("hydra", "all"):
        own_overrides = [override for override in options.overrides if override not in hydra_overrides]
        jobs(own_overrides, config_dirs=options.config_dir)
        return _ask_hydra(options.overrides, options)
    found = jobs(options.overrides, options.multirun, options.config_dir)
    if hint := loggers.hint(options.overrides):
        print(printable(hint), file=sys.stderr)
    if options.cfg:
        return _print(found, options.package)
    if options.dry_run:
        from rlrun.cli.dry_run import dry_run

        return dry_run(found)
    if submission is not None and (options.multirun or submission.name != "local"):
        from rlrun.cli import submit

        if submission.name == "local":
            check_jobs(found)
        else:
            check_jobs(found, device="auto")  # the job's machine has other devices
        return submit.start(found, submission, options.config_dir)
    if options.multirun:
        return _sweep(found, options)
    return run(found[0])


def _submission(words: Sequence[str]) -> tuple["Submission | None", list[str]]:
    """Returns where the user wants the jobs to be started, or None for this process, and the other words."""
    if not any(word.startswith("submit") for word in words):
        return None, list(words)
    from rlrun.cli.submit import REFUSED
    from rlrun.cluster.submission import chosen

    submission, others = chosen(words, REFUSED)
    launchers = [word for word in others if word.startswith("hydra/launcher=")]
    if submission is not None and launchers:
        raise ConfigError(f"{launchers[0]}: submit={submission.name} starts the jobs already; type one of the two")
    return submission, others


def run(job: "Job") -> int:
    """Trains one job. Returns the exit code."""
    from rlrun.run.job import modules_of, train_job

    done = train_job(job)
    say_how_to_resume(done.exit_code, done.path, modules_of(job))
    return done.exit_code


def say_how_to_resume(code: int, path: "Path", plugins: Sequence[str]) -> None:
    """Prints the command that resumes the run if a signal stopped it."""
    if code not in CODES.values():
        return
    from rlrun.config.stored import CONFIG, read_config
    from rlrun.telemetry.choice import again
    from rlrun.telemetry.stdout import muted_on_error

    command = ["rlrun", "resume", str(path)]
    if plugins:
        command.append(f"plugins=[{','.join(plugins)}]")
    if word := again(read_config(path / CONFIG)["logger"]):
        command.append(word)
    with muted_on_error():
        print(printable(shlex.join(command)), flush=True)


class SweepJob:
    """Runs one job of a sweep. If the job fails, the sweep continues.

    A failure is recorded in `codes` if the job runs in the sweep's own process; in a launcher's process it is raised.
    """

    def __init__(self, total: int):
        self.total = total
        self.home = os.getpid()
        self.done = 0
        self.codes = [0]

    def __call__(self, values: dict[str, Any], overrides: list[str]) -> None:
        from rlrun.config.jobs import Job

        self.done += 1
        print(f"job {self.done} of {self.total}: {' '.join(overrides)}", flush=True)
        try:
            code = run(Job(overrides, values))
        except RlrunError as error:
            print(f"error: {error}", file=sys.stderr)
            code = error.exit_code
        if code > 128:
            raise SystemExit(code)
        if code and os.getpid() != self.home:
            raise RlrunError(f"{' '.join(overrides)}: exit code {code}")
        self.codes.append(code)


def _sweep(found: Sequence["Job"], options: argparse.Namespace) -> int:
    """Checks all jobs, launches them with Hydra, and prints a table of their results. Returns the exit code."""
    from rlrun.cli.multirun import Results
    from rlrun.config.compose import hand_over
    from rlrun.config.jobs import for_hydra

    check_jobs(found)
    job, results = SweepJob(len(found)), Results(found)
    began = time.perf_counter()
    try:
        hand_over(for_hydra(options.overrides, options.config_dir), ["--multirun"], job)
    except RlrunError:  # raised by a job in a launcher's process
        results.show()
        raise
    results.show()
    failed = sum(code != 0 for code in job.codes)
    print(f"{len(found)} jobs, {failed} failed, {time.perf_counter() - began:.0f} s")
    return 1 if failed else 0


def check_jobs(found: Sequence["Job"], **changes: Any) -> None:
    """Raises ConfigError if a job cannot be trained, or if two jobs have the same folder. Says if presets are unequal.

    changes: of all configs.
    """
    from rlrun.cli.multirun import unequal_presets
    from rlrun.config.jobs import for_all
    from rlrun.config.schema import run_config
    from rlrun.run.lifecycle import check

    folders = [job.values["run_dir"] for job in found if job.values["run_dir"] is not None]
    if len(set(folders)) < len(folders):
        raise ConfigError(
            f"run_dir={folders[0]}: the jobs of a sweep cannot share a folder; use name=... to group them"
        )
    for_all(found, lambda job: check(run_config(job.values | changes)), lambda job: job.words)
    for line in unequal_presets(found):
        print(printable(line), file=sys.stderr)


def _ask_hydra(overrides: Sequence[str], options: argparse.Namespace) -> int:
    """Prints the output of one of Hydra's own options."""
    from rlrun.config.compose import hand_over
    from rlrun.config.jobs import for_hydra

    flags = ["--hydra-help"] * options.hydra_help
    for name in ("info", "cfg", "package"):
        value = getattr(options, name)
        if value:
            flags.append(f"--{name}={value}")
    hand_over(for_hydra(overrides, options.config_dir), flags, lambda values, overrides: None)
    return 0


def _print(found: Sequence["Job"], package: str | None) -> int:
    import yaml

    from rlrun.config import check

    for i, job in enumerate(found):
        tree: Any = job.values
        if package:
            tree = check.lookup(package, job.values)
        if tree is check.ABSENT:
            raise ConfigError(f"--package {package}: no such section")
        text = f"{check.show(tree)}\n"
        if isinstance(tree, dict):
            text = yaml.safe_dump(tree, sort_keys=False)
        print("---\n" * (i > 0) + text, end="")
    return 0


def _options(args: Sequence[str]) -> argparse.Namespace:
    parser = Parser(prog="rlrun train", add_help=False, allow_abbrev=False)
    for flags in (("--help", "-h"), ("--multirun", "-m"), ("--resolve",), ("--hydra-help",), ("--dry-run",)):
        parser.add_argument(*flags, action="store_true")
    parser.add_argument("--cfg", "-c", choices=["job", "hydra", "all"])
    parser.add_argument("--package", "-p")
    parser.add_argument("--config-dir", "-cd", action="append", default=[])
    views = ["all", "config", "defaults", "defaults-tree", "plugins", "searchpath"]
    parser.add_argument("--info", "-i", nargs="?", const="all", choices=views)
    options, overrides = parser.parse_known_args(list(args))
    options.overrides = overrides
    if not options.help:
        check_form("train", options.overrides, [arg for arg in args if arg not in overrides])
    return options
