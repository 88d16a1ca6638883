"""A run that is submitted to a simulated Slurm, preempted there, requeued, and goes on bit for bit.

On the signal of a preemption, submitit's handler calls `scontrol requeue ID`. rlrun must write its snapshot first, and
then call this handler.
"""

import re
from pathlib import Path

import pytest
from fake_slurm import FakeSlurm
from test_kill_and_resume import RUNS, rows, snapshot, summary

from rlrun.cli import main


def submitted(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[str, Path]:
    """Submits a run. Returns the id of its job, and its folder."""
    assert main(["train", *words, "submit=slurm"]) == 0
    found = re.match(r"submitted to slurm: job (\d+), run (\S+)\nfollow it with: ", capsys.readouterr().out)
    assert found
    return found[1], Path(found[2])


def compare(name: str, at: int, slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Preempts a run when it has so many rows, and compares it with a run that is left alone."""
    alone = tmp_path / "alone"
    id, run = submitted(RUNS[name], capsys)
    slurm.wait(lambda: len(rows(run)) >= at)
    slurm.preempt(id)
    slurm.wait(lambda: slurm.starts == [id, id])
    stopped = summary(run)
    assert stopped["status"] == "stopped" and stopped["step"] > 0
    assert slurm.wait_for_end() == ["COMPLETED"], run.with_name(f"{run.name}.log").read_text()
    assert "resumed from step" in run.with_name(f"{run.name}.log").read_text()
    assert main(["train", *RUNS[name], f"run_dir={alone}"]) == 0
    assert rows(run) == rows(alone) and snapshot(run)["digest"] == snapshot(alone)["digest"]


def test_preempted_job_is_requeued_and_its_run_goes_on(
    slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compare("ppo", 3, slurm, tmp_path, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("case", range(20))
def test_preempted_jobs_equal_those_left_alone(
    case: int, slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compare(["ppo", "sac", "dqn", "ppo-normalised"][case % 4], 1 + case // 2, slurm, tmp_path, capsys)
