"""Starts the jobs of `rlrun train` where the user said: submit=local, slurm or ray."""

import sys
import time
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any

from rlrun.cluster import Cluster, Command
from rlrun.cluster.ray import RayConfig
from rlrun.cluster.submission import Submission
from rlrun.config.compose import literal
from rlrun.config.jobs import Job
from rlrun.errors import printable
from rlrun.rundir import SUMMARY

POLL_S = 0.05
PLACES = ("run_dir", "resume")  # words that a submitted job gets, so that it goes on when it is started again
REFUSED = {"submit.driver": "is a setting of `rlrun sweep`, whose driver starts runs"}


def start(jobs: Sequence[Job], submission: Submission, config_dirs: Sequence[str]) -> int:
    """Submits the jobs and returns, or with submit=local trains them all. Returns the exit code."""
    if isinstance(submission.cfg, RayConfig):
        submission.cfg.check_lasting()
    commands = _commands(jobs, config_dirs)
    cluster = submission.cluster()
    if submission.name == "local":
        return _train(jobs, commands, cluster, submission.values["workers"])
    try:
        id = cluster.submit(commands)
    finally:
        cluster.close()
    if len(commands) == 1:
        print(printable(f"submitted to {submission.name}: job {id}, run {commands[0].name}"))
        print(printable(f"follow it with: rlrun tail {commands[0].name}   output: {commands[0].log}"))
    else:
        folders = {str(command.log.parent) for command in commands}
        shown = ", ".join(sorted(folders))
        print(printable(f"submitted to {submission.name}: {len(commands)} jobs, {id}; rlrun status {shown}"))
    return 0


def _commands(jobs: Sequence[Job], config_dirs: Sequence[str]) -> list[Command]:
    """Returns the command of each job. Each job has the folder of its run from now on."""
    options = [word for folder in config_dirs for word in ("--config-dir", folder)]
    commands: dict[str, Command] = {}
    for job in jobs:
        path = _folder(job.values, commands)
        words = [word for word in job.words if word.partition("=")[0] not in PLACES]
        words += [f"run_dir={literal(str(path))}", "resume=auto"]
        log = path.with_name(f"{path.name}.log")
        commands[str(path)] = Command(str(path), ["train", *words, *options], log)
    return list(commands.values())


def _folder(values: dict[str, Any], taken: Container[str]) -> Path:
    """Returns the folder of a run: the one typed, that of an earlier run if resume=auto finds one, or a new one."""
    from rlrun.run.job import earlier
    from rlrun.rundir import new_path, planned

    if values["resume"] == "auto":
        path = earlier(values)
        if path is not None and str(path) not in taken:
            return path
    if values["run_dir"] is not None:
        return Path(planned(values))
    while True:
        path = new_path(values["name"], values["seed"])
        if str(path) not in taken:
            return path


def _train(jobs: Sequence[Job], commands: Sequence[Command], cluster: Cluster, workers: int) -> int:
    """Trains all jobs, so many at a time, and prints a table of their results. Returns the exit code."""
    from rlrun.cli.multirun import Results

    results = Results(jobs)
    began = time.perf_counter()
    try:
        codes = _codes(commands, cluster, workers)
    except (SystemExit, KeyboardInterrupt):
        print("interrupted; the same command with resume=auto goes on", file=sys.stderr)
        raise
    finally:
        cluster.close()
    results.show()
    failed = sum(code != 0 for code in codes)
    print(f"{len(jobs)} jobs, {failed} failed, {time.perf_counter() - began:.0f} s")
    return 1 if failed else 0


def _codes(commands: Sequence[Command], cluster: Cluster, workers: int) -> list[int | None]:
    """Runs commands until all have ended, so many at a time. Returns their exit codes, 1 for a run without a result."""
    waiting = list(commands)
    running: dict[str, Command] = {}
    codes = []
    while waiting or running:
        while waiting and len(running) < workers:
            command = waiting.pop(0)
            running[command.name] = command
            cluster.submit([command])
            number = len(commands) - len(waiting)
            print(printable(f"job {number} of {len(commands)}: {command.log}"), flush=True)
        for ended in cluster.ended():
            command = running.pop(ended.name)
            code = ended.exit_code
            why = f"exit code {code}"
            if code == 0 and not (Path(command.name) / SUMMARY).is_file():  # an environment may end its process
                code, why = 1, "the process ended before the run"
            codes.append(code)
            if code != 0:
                print(printable(f"error: {command.log}: {why}"), file=sys.stderr)
        time.sleep(POLL_S)
    return codes
