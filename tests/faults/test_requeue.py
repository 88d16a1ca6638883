"""A job that a simulated cluster preempts and starts again, as with submitit.

Slurm would run `python -m submitit.core._submit FOLDER`. On the requeue signal, submitit's handler pickles the job
again and calls `scontrol requeue ID`. rlrun must write its snapshot first, and then call this handler.
"""

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from submitit.core.utils import DelayedSubmission, JobPaths
from test_kill_and_resume import RUNS, Process, rows, snapshot, summary

import rlrun

JOB = "42"
SCONTROL = """#!/bin/sh
echo "$@" >> "$(dirname "$0")/requeued"
"""


class Training:
    """The submitted job: the same command each time."""

    def __init__(self, words: list[str]):
        self.words = words

    def __call__(self) -> int:
        from rlrun.cli import main

        return main(["train", *self.words])

    def checkpoint(self) -> DelayedSubmission:
        return DelayedSubmission(Training(self.words))


class Cluster(Process):
    """One start of the job, as by Slurm."""

    def __init__(self, folder: Path):
        path = os.pathsep.join([str(Path(rlrun.__file__).parents[1]), str(Path(__file__).parent)])
        environment = os.environ | {
            "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
            "SUBMITIT_EXECUTOR": "slurm", "SLURM_JOB_ID": JOB, "PYTHONWARNINGS": "ignore",
        }  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-m", "submitit.core._submit", str(folder)],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip


def submit(folder: Path, words: list[str]) -> None:
    folder.mkdir()
    (folder / "scontrol").write_text(SCONTROL)
    (folder / "scontrol").chmod(0o755)
    delayed = DelayedSubmission(Training(words))
    delayed.set_timeout(60, 3)
    delayed.dump(JobPaths(folder, JOB).submitted_pickle)


def a_row(run: Path) -> Callable[[], bool]:
    return lambda: len(rows(run)) > 2


def requeues(folder: Path) -> list[str]:
    path = folder / "requeued"
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize("early", [pytest.param(None, marks=pytest.mark.slow), signal.SIGTERM])
def test_preempted_job_is_requeued_and_resumes_with_the_same_command(
    early: signal.Signals | None,
    tmp_path: Path,  # Slurm may send both at once
) -> None:
    run, folder, alone = tmp_path / "run", tmp_path / "job", tmp_path / "alone"
    undisturbed = Process("train", *RUNS["ppo"], f"run_dir={alone}")
    submit(folder, [*RUNS["ppo"], f"run_dir={run}", "resume=auto"])

    first = Cluster(folder)
    ready = a_row(run)
    if early is not None:
        while not ready():
            assert first.process.poll() is None, first.finish()[1]
        first.process.send_signal(early)
    code, output = first.signal_when(signal.SIGUSR2, ready)
    assert code == 255, output  # submitit exits with -1 after it has requeued
    assert requeues(folder) == [f"requeue {JOB}"], output
    stopped = summary(run)
    assert stopped["status"] == "stopped" and snapshot(run)["header"]["step"] == stopped["step"]

    code, output = Cluster(folder).finish()
    assert code == 0 and "resumed from step" in output, output
    assert requeues(folder) == [f"requeue {JOB}"]
    assert pickle.loads(JobPaths(folder, JOB).result_pickle.read_bytes()) == ("success", 0)
    assert undisturbed.finish()[0] == 0
    assert rows(run) == rows(alone) and snapshot(run)["digest"] == snapshot(alone)["digest"]
