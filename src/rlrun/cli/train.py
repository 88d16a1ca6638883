"""Implements `rlrun train`: checks all jobs, then trains a single one here or starts them in a cluster."""

import argparse
import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from rlrun import dotted
from rlrun.cli.forms import check_form
from rlrun.config import sources
from rlrun.errors import PROGRAM, ConfigError, printable
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
  submit=slurm         submit the run as a job and return: slurm, ray (rlrun show submit=slurm: partition, time, ...)
  submit=local         with -m: submit.workers runs at a time on this machine; -m alone: one after the other
  a.b=value            set any key that `rlrun show algo=<name> env=<name>` prints
  plugins=[package]    import your own algorithms, networks and environments; a path works too: plugins=[./my_file.py]
  env=./my_env.py:MyEnv, algo=./my_algo.py, network=./my_net.py: one of your own, in one file

  -m, --multirun       run a job for each combination of values: seed=0,1,2  algo.gamma=0.9,0.99  'seed=range(5)'
  ppo.a.b=value        with -m algo=ppo,sac: a setting of the runs of ppo alone
  --dry-run            print sizes, memory, disk space and time of the run instead of training; write nothing
  -c, --cfg job        print the config instead of training
  -p, --package KEY    with --cfg: print only this section
  -i, --info [WHAT]    print what Hydra knows: all (default), config, defaults, defaults-tree, plugins, searchpath
  --config-dir DIR     search this folder for YAML files too

  rlrun train algo=sac env=HalfCheetah seed=1
  rlrun train -m algo=sac env=HalfCheetah,Hopper seed=0,1,2

exit codes: 0 success, 1 a run failed, 2 bad input, 3 unusable snapshot, 130 stopped by Ctrl-C, 143 by another signal"""

OPTIONS = ("--multirun", "--dry-run", "--cfg", "--package", "--info", "--config-dir")
ONE_BY_ONE = ("submit=local", "submit.workers=1")  # where -m starts the jobs by default


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

    submission, options.overrides = _submission(options.overrides, options.multirun)
    if options.info:
        from rlrun.config.compose import Composer, show_info

        jobs([*options.overrides, *options.config_dirs])  # only to report faults as `rlrun train` does
        words = sources.by_name(options.overrides)
        show_info(Composer.of([*words, *options.config_dirs]), words, options.info)
        return 0
    found = jobs([*options.overrides, *options.config_dirs], options.multirun)
    if hint := loggers.hint(options.overrides):
        print(printable(hint), file=sys.stderr)
    if options.cfg:
        return _print(found, options.package)
    if options.dry_run:
        from rlrun.cli.dry_run import dry_run

        return dry_run(found)
    if submission is None:
        return run(found[0])
    from rlrun.cli import submit

    if submission.name == "local":
        check_jobs(found)
    else:
        check_jobs(found, device="auto")  # the machine that trains a job may have other devices
    return submit.start(found, submission, options.config_dirs)


def _submission(words: Sequence[str], multirun: bool) -> tuple["Submission | None", list[str]]:
    """Returns what starts the jobs, or None for a single run in this process, and the other words."""
    if not multirun and not any(word.startswith("submit") for word in words):
        return None, list(words)
    from rlrun.cli.submit import REFUSED
    from rlrun.cluster.submission import chosen

    submission, others = chosen(words, REFUSED)
    if submission is None and multirun:
        submission, _ = chosen(ONE_BY_ONE, {})
    if submission is not None and submission.name == "local" and not multirun:
        return None, others
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
    from rlrun.telemetry import loggers
    from rlrun.telemetry.stdout import stdout_may_close

    command = [PROGRAM, "resume", str(path)]
    if plugins:
        command.append(f"plugins=[{','.join(plugins)}]")
    # loggers that send data out of the run must be named again
    if word := loggers.override(read_config(path / CONFIG)["logger"]):
        command.append(word)
    with stdout_may_close():
        print(printable(shlex.join(command)), flush=True)


def check_jobs(found: Sequence["Job"], **changes: Any) -> None:
    """Raises ConfigError if a job cannot be trained, or if two jobs have the same folder.

    Warns on stderr if some jobs of an environment have a preset and others have none. changes: values of the config, by
    key, which replace those of every job for this check.
    """
    from rlrun.config.jobs import for_all
    from rlrun.config.schema import run_config
    from rlrun.run.lifecycle import check

    folders: set[str] = set()
    for job in found:
        folder = job.values["run_dir"]
        if folder in folders:
            raise ConfigError(f"run_dir={folder}: the jobs of a grid cannot share a folder; use name=... to group them")
        if folder is not None:
            folders.add(folder)
    for_all(found, lambda job: check(run_config(job.values | changes)), lambda job: job.words)
    for line in unequal_presets(found):
        print(printable(line), file=sys.stderr)


def unequal_presets(jobs: Sequence["Job"]) -> Iterator[str]:
    """Yields a line for each environment in which some jobs have a preset and others have none. Jobs with a typed
    preset are not compared."""
    algos: dict[str, dict[str | None, str]] = {}  # environment -> preset -> the algorithm of its first job
    for job in jobs:
        typed = dict(word.split("=", 1) for word in job.words if "=" in word)
        if "preset" not in typed:
            algos.setdefault(job.values["env"]["id"], {}).setdefault(job.values["preset"], typed["algo"])
    for env, found in algos.items():
        presets = [preset for preset in found if preset is not None]
        if None not in found or not presets:
            continue
        first = presets[0]
        line = f"{env}: algo={found[first]} has preset {first}, algo={found[None]} has none, so their settings differ"
        line += "; preset=none makes them equal"
        if len(presets) == 1:
            line += f", and so does preset={first} if algo={found[None]} has the keys of that preset"
        yield line


def _print(found: Sequence["Job"], package: str | None) -> int:
    """Prints the config of each job, or a section of it. Returns the exit code."""
    import yaml

    for i, job in enumerate(found):
        tree: Any = job.values
        if package:
            tree = dotted.lookup(package, job.values)
        if tree is dotted.ABSENT:
            raise ConfigError(f"--package {package}: no such section")
        text = f"{dotted.show(tree)}\n"
        if isinstance(tree, dict):
            text = yaml.safe_dump(tree, sort_keys=False)
        if i > 0:
            print("---")
        print(text, end="")
    return 0


def _options(args: Sequence[str]) -> argparse.Namespace:
    parser = Parser(prog="rlrun train", add_help=False, allow_abbrev=False)
    # --resolve, Hydra's option for resolved values, changes nothing: --cfg always prints resolved values
    for flags in (("--help", "-h"), ("--multirun", "-m"), ("--resolve",), ("--dry-run",)):
        parser.add_argument(*flags, action="store_true")
    parser.add_argument("--cfg", "-c", choices=["job"])
    parser.add_argument("--package", "-p")
    views = ["all", "config", "defaults", "defaults-tree", "plugins", "searchpath"]
    parser.add_argument("--info", "-i", nargs="?", const="all", choices=views)
    config_dirs, others = sources.config_dirs(args)
    options, overrides = parser.parse_known_args(others)
    options.overrides, options.config_dirs = overrides, config_dirs
    if not options.help:
        check_form("train", options.overrides, [arg for arg in args if arg not in overrides])
    return options
