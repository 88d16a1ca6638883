"""Starts the jobs of `rlrun train` where the user chose with submit=local, slurm or ray."""

import sys
import time
from collections import deque
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any

from rlrun import lock
from rlrun.cli import main
from rlrun.cli.columns import print_columns
from rlrun.cli.grid import IN_USE, TRAINING, WAITING, GridJob, GridProgress
from rlrun.cli.grid_display import GridDisplay, open_grid_display
from rlrun.cluster import Cluster, Command
from rlrun.cluster.local import LocalConfig
from rlrun.cluster.ray import RayConfig
from rlrun.cluster.submission import Submission
from rlrun.config.compose import literal
from rlrun.config.jobs import Job
from rlrun.errors import PROGRAM, printable, quoted

POLL_S = 0.05
OURS = ("run_dir", "resume")  # settings that are set for each job, so that the same command continues its run
REFUSED = {"submit.driver": "is a setting of `rlrun sweep`, whose driver starts runs"}


def start(jobs: Sequence[Job], submission: Submission, config_dirs: Sequence[str]) -> int:
    """Submits the jobs and returns, or with submit=local trains them all. Returns the exit code."""
    if isinstance(submission.cfg, RayConfig):
        submission.cfg.check_lasting()
    commands = _commands(jobs, config_dirs)
    cluster = submission.cluster(main)
    if isinstance(submission.cfg, LocalConfig):
        return _train_all(GridProgress(jobs, commands), cluster, submission.cfg.workers)
    try:
        id = cluster.submit(commands)
    finally:
        cluster.close()
    if len(commands) == 1:
        print(printable(f"submitted to {submission.name}: job {id}, run {commands[0].name}"))
        print(printable(f"follow it with: {PROGRAM} tail {quoted(commands[0].name)}   output: {commands[0].log}"))
    else:
        folders = {str(command.log.parent) for command in commands}
        shown = " ".join(map(quoted, sorted(folders)))
        print(printable(f"submitted to {submission.name}: {len(commands)} jobs, {id}; {PROGRAM} status {shown}"))
    return 0


def _commands(jobs: Sequence[Job], config_dirs: Sequence[str]) -> list[Command]:
    """Returns the command of each job, which names the folder of its run."""
    commands: dict[str, Command] = {}
    for job in jobs:
        path = _folder(job.values, commands)
        words = [word for word in job.words if word.partition("=")[0] not in OURS]
        words += [f"run_dir={literal(str(path))}", "resume=auto"]
        log = path.with_name(f"{path.name}.log")
        commands[str(path)] = Command(str(path), ["train", *words, *config_dirs], log)
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


def _train_all(grid: GridProgress, cluster: Cluster, workers: int) -> int:
    """Trains all jobs, `workers` at a time, and prints the table of results. Returns the exit code."""
    display = open_grid_display(grid)
    try:
        try:
            _run(grid.jobs, cluster, workers, display)
        finally:
            display.close()
    except (SystemExit, KeyboardInterrupt):
        print("interrupted; the same command with resume=auto goes on", file=sys.stderr)
        raise
    finally:
        cluster.close()
    results = grid.results()
    if any(row[-1] for row in results[1:]):  # some job has a run
        print_columns(results)
    print(f"{len(grid.jobs)} jobs, {grid.failed} failed, {grid.elapsed_s:.0f} s")
    return 1 if grid.failed else 0


def _run(jobs: Sequence[GridJob], cluster: Cluster, workers: int, display: GridDisplay) -> None:
    """Runs the commands of the jobs in their order, `workers` at a time, until all have ended."""
    waiting = deque(jobs)
    running: dict[str, GridJob] = {}
    while waiting or running:
        while waiting and len(running) < workers and _is_free(waiting[0], display):
            job = waiting.popleft()
            job.status = TRAINING
            running[job.command.name] = job
            cluster.submit([job.command])
            display.started(job)
        for ended in cluster.ended():
            job = running.pop(ended.name)
            why = job.end(ended)
            display.ended(job)
            if why:
                print(printable(f"error: {job.label}: {why}; output: {job.command.log}"), file=sys.stderr)
        display.progress()
        time.sleep(POLL_S)


def _is_free(job: GridJob, display: GridDisplay) -> bool:
    """Returns whether no process trains the run of a job.

    A process of an earlier command that was killed may still train it; a message then says once that the job waits.
    """
    holder = lock.holder(job.path)
    if holder is not None and job.status == WAITING:
        job.status = IN_USE
        display.message(f"{job.label}: waits for {job.path}, which is in use by {holder}")
    return holder is None
