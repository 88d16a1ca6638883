"""Submits commands to Slurm with submitit, whose signal handlers requeue a job that is preempted or out of time."""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from rlrun import files
from rlrun.cluster import Cluster, Command, Main
from rlrun.cluster.scheduler import Scheduler, label, title
from rlrun.cluster.task import run
from rlrun.errors import ConfigError, RunError, one_line, printable
from rlrun.imports import check_extra
from rlrun.rundir import RUNS
from rlrun.settings import NonNegativeInt, PositiveInt, config

if TYPE_CHECKING:
    from submitit.core.utils import DelayedSubmission

# Folder of submitit's files, which jobs unpickle. It is not a sweep's folder, which may be untrusted and must not hold
# links.
FOLDER = RUNS / ".submitit"
MINUTES = {"m": 1, "h": 60, "d": 24 * 60}
SIGNAL_S = 120  # from the signal to the end of a job, in which the snapshot is written
REQUEUES = 10_000  # of a job that reaches its time limit; enough for any run
STATES = "PENDING,CONFIGURING,RUNNING,SUSPENDED,STOPPED,COMPLETING,REQUEUED,REQUEUE_HOLD"


def _time(value: str) -> str:
    if not re.fullmatch(r"[1-9]\d*[mhd]", value):
        raise PydanticCustomError("time", "Input should be minutes, hours or days, like 30m, 4h or 2d")
    return value


def _memory(value: str) -> str:
    if not re.fullmatch(r"[1-9]\d*[MGT]", value):
        raise PydanticCustomError("memory", "Input should be a size, like 500M, 16G or 1T")
    return value


@config
class SlurmConfig:
    """Settings of `submit=slurm`."""

    executor: Literal["slurm", "local"]
    driver: Literal["job", "here"]
    partition: str | None
    time: Annotated[str, AfterValidator(_time)]
    cpus: PositiveInt
    gpus: NonNegativeInt
    memory: Annotated[str, AfterValidator(_memory)] | None
    workers: PositiveInt | None
    setup: list[str]
    options: dict[str, Any]

    def cluster(self, main: Main) -> Cluster:
        return Slurm(self, main)

    @property
    def minutes(self) -> int:
        """The time limit in minutes."""
        return int(self.time[:-1]) * MINUTES[self.time[-1]]


class Slurm(Scheduler):
    """Jobs of Slurm, or of submitit's local executor."""

    def __init__(self, cfg: SlurmConfig, main: Main):
        """Raises ConfigError if submitit is not installed or this machine has no Slurm."""
        check_extra("slurm", "submit=slurm")
        super().__init__()
        self.cfg, self.main = cfg, main
        self.processes: dict[str, Any] = {}  # jobs of submitit's local executor, by label
        if cfg.executor == "slurm":
            self._check_programs()

    def start(self, commands: Sequence[Command]) -> str:
        labels = [label(command.log) for command in commands]
        check_printable([FOLDER.absolute(), *labels])
        RUNS.mkdir(exist_ok=True)
        # a new folder, because jobs unpickle files whose names could be guessed and prepared
        folder = tempfile.mkdtemp(prefix="", dir=files.make_folder(FOLDER))
        executor = self._executor(Path(folder), title(commands), len(commands))
        words = [command.words for command in commands]
        logs = [str(command.log.absolute()) for command in commands]
        try:
            with _outside_of_a_job(), contextlib.redirect_stderr(io.StringIO()):  # submitit prints the error, too
                jobs = executor.map_array(Task(self.main), words, logs)
        except (RuntimeError, OSError) as error:
            lines = str(error).splitlines() or ["failed"]
            raise RunError(f"sbatch: {lines[-1].removeprefix('sbatch: ')}") from None
        if self.cfg.executor == "local":
            self.processes.update(zip(labels, jobs, strict=True))
        return str(jobs[0].job_id).partition("_")[0]  # of the array

    def queued(self) -> set[str] | None:
        if self.cfg.executor == "local":
            return {label for label, job in self.processes.items() if not job.done()}
        command = ["squeue", "--me", "--noheader", f"--states={STATES}", "--format=%j"]
        try:
            found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        except (OSError, subprocess.SubprocessError):
            return None
        return set(map(str.strip, found.stdout.splitlines()))

    def interrupt(self) -> None:
        """Raises RunError if Slurm does not answer."""
        if self.cfg.executor == "local":
            for job in self.processes.values():
                job.cancel()
        else:
            for log in self.logs.values():
                self._cancel(log)
        self.logs = {}

    def _cancel(self, log: Path) -> None:
        """Cancels the job of a command: it gets SIGTERM, and time to write a snapshot."""
        try:
            subprocess.run(["scancel", "--me", f"--name={label(log)}"], capture_output=True, timeout=60, check=True)
        except (OSError, subprocess.SubprocessError) as error:
            raise RunError(f"{log}: scancel failed: {one_line(error)}") from None

    def close(self) -> None:
        """Waits for the processes of the local executor whose commands have ended. Everything else goes on."""
        going_on = set(map(label, self.logs.values()))
        for name, job in self.processes.items():
            while name not in going_on and not job.done():
                time.sleep(0.05)

    def _executor(self, folder: Path, name: str, count: int) -> Any:
        """Returns submitit's executor for `count` commands. folder: for its files. name: of the job."""
        import submitit

        cfg = self.cfg
        python = f"{shlex.quote(sys.executable)} -P"  # the current folder may hold any files
        executor = submitit.AutoExecutor(
            folder, cluster=cfg.executor,
            slurm_max_num_timeout=REQUEUES, slurm_python=python, local_max_num_timeout=REQUEUES, local_python=python,
        )  # fmt: skip
        executor.update_parameters(
            name=name, timeout_min=cfg.minutes, cpus_per_task=cfg.cpus, gpus_per_node=cfg.gpus or None,
            stderr_to_stdout=True, local_setup=cfg.setup,
            slurm_partition=cfg.partition, slurm_mem=cfg.memory, slurm_setup=cfg.setup,
            slurm_signal_delay_s=SIGNAL_S, slurm_array_parallelism=cfg.workers or count,
            slurm_additional_parameters=cfg.options,
        )  # fmt: skip
        return executor

    def _check_programs(self) -> None:
        from shutil import which

        lacking = [program for program in ("sbatch", "squeue", "srun") if which(program) is None]
        if lacking:
            raise ConfigError(
                f"submit=slurm: this machine has no {', '.join(lacking)}; submit where Slurm is installed, "
                "or try it with submit.executor=local"
            )


class Task:
    """What a job of submitit calls: `rlrun *words`. Only the words, and the name of the function `main`, travel."""

    def __init__(self, main: Main):
        self.main = main

    def __call__(self, words: list[str], log: str) -> None:
        code = run(self.main, words, Path(log))
        if code:
            sys.exit(code)  # so that Slurm lists the job as failed

    def checkpoint(self, words: list[str], log: str) -> "DelayedSubmission":
        """Returns what a requeued job calls: the same, because the run has written a snapshot."""
        from submitit.core.utils import DelayedSubmission

        return DelayedSubmission(self, words, log)


def check_printable(paths: Sequence[Path | str]) -> None:
    """Raises ConfigError for a path with a line break, the rest of which Slurm's script would run as commands."""
    for path in paths:
        if not str(path).isprintable():
            raise ConfigError(f"submit=slurm: the path {printable(path)} has control characters; rename the folder")


@contextlib.contextmanager
def _outside_of_a_job() -> Iterator[None]:
    """As a context manager, hides the variables of the job that this process runs in, which confuse a new job.

    Variables of the user, such as SLURM_CONF and SBATCH_ACCOUNT, stay.
    """
    hidden = {}
    if "SLURM_JOB_ID" in os.environ:
        for name in list(os.environ):
            if name.startswith(("SLURM_", "SLURMD_", "SRUN_", "SUBMITIT_")) and name != "SLURM_CONF":
                hidden[name] = os.environ.pop(name)
    try:
        yield
    finally:
        os.environ.update(hidden)
