"""The jobs of a grid, how they are shown, and the table at its end."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from rlrun.cli import main
from rlrun.cli.grid import FAILED, STOPPED, TRAINING, GridJob, GridProgress
from rlrun.cli.grid_display import GridLines, grid_panel
from rlrun.cli.train import check_jobs, unequal_presets
from rlrun.cluster import Command, Ended
from rlrun.config.jobs import Job, jobs
from rlrun.errors import ConfigError
from rlrun.rundir import RunDir
from rlrun.telemetry.panel import UNICODE

PAIR = ["algo=ppo", "env=CartPole"]


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def grid_of(*words: str) -> GridProgress:
    """Returns a grid whose jobs have not started, with the folders runs/0, runs/1, ..."""
    found = jobs([*PAIR, *words], multirun=True)
    paths = [Path("runs", f"{place}") for place in range(len(found))]
    return GridProgress(found, [Command(str(path), [], Path(f"{path}.log")) for path in paths])


def ran(job: GridJob, rows: list[dict[str, float]] = [], **summary: object) -> None:  # noqa: B006
    """Writes the files that a process leaves when it has trained the run of this job."""
    (found,) = jobs([*PAIR, "total_steps=4000"])
    folder = RunDir.create({**found.values, "run_dir": job.command.name})
    folder.write_start(found.values, found.words)
    (folder.path / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    if summary:
        (folder.path / "summary.json").write_text(json.dumps(summary))
    folder.release()


def test_grid_has_a_row_for_every_job() -> None:
    grid = grid_of("seed=0,1,2,3")
    ran(grid.jobs[1], status="failed", step=2048, final_return=None, best_return=21.5)
    ran(grid.jobs[0], status="done", step=4096, final_return=30.0, best_return=1234.5)
    ran(grid.jobs[2], [{"step": 512, "wall_s": 1.0}])
    for job, code in zip(grid.jobs, (0, 1, -9, 2), strict=True):
        job.end(Ended(job.command.name, code))
    assert grid.results() == [
        ("job", "status", "steps", "final", "best", "run"),
        ("seed=0", "done", "4,096", "30.00", "1,234", "runs/0"),
        ("seed=1", "failed", "2,048", "", "21.50", "runs/1"),
        ("seed=2", "failed", "512", "", "", "runs/2"),
        ("seed=3", "no run", "", "", "", ""),
    ]


def test_grid_names_a_job_by_the_words_that_not_all_jobs_share() -> None:
    assert [job.own_words for job in grid_of("seed=0,1", "name=x").jobs] == ["seed=0", "seed=1"]
    assert [job.own_words for job in grid_of("seed=0").jobs] == ["algo=ppo env=CartPole seed=0"]
    Path("my_net.py").write_text(
        "@register('network', 'my_net')\nclass Net:\n    class Config:\n        width: int = 8\n"
    )
    assert [job.own_words for job in grid_of("network=./my_net.py,mlp").jobs] == ["network=my_net", "network=mlp"]


@pytest.mark.parametrize(
    ("code", "summary", "status", "why"),
    [
        (0, {"status": "done"}, "done", ""),
        (0, {"status": "paused"}, "paused", ""),
        (0, {"status": "stopped"}, FAILED, "its process exited without an error before the run was done"),
        (0, {}, FAILED, "its process exited without an error before the run was done"),
        (1, {"status": "failed"}, FAILED, "NaN in loss"),
        (143, {"status": "stopped"}, STOPPED, "NaN in loss"),
        (-9, {}, FAILED, "its process was killed by signal 9"),
        (None, {}, FAILED, "its exit code is not known, because the process that started it was killed"),
    ],
)
def test_grid_job_ends_with_its_exit_code_and_summary(
    code: int | None, summary: dict[str, str], status: str, why: str
) -> None:
    job = grid_of("seed=0").jobs[0]
    ran(job, **summary)
    job.command.log.write_text("1,024 of 4,000\nerror: NaN in loss\n")
    assert (job.end(Ended("runs/0", code)), job.status) == (why, status)


def shown(grid: GridProgress, width: int = 70, height: int = 40) -> list[str]:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(grid_panel(grid, width, height, UNICODE))
    return [line.strip("│ ") for line in console.file.getvalue().splitlines()]


def test_grid_panel_has_progress_return_and_time_left_of_each_job() -> None:
    grid = grid_of("seed=0,1,2")
    first, second, _ = grid.jobs
    rows = [{"step": 1000 * (i + 1), "wall_s": 10.0 * (i + 1), "train/return_mean": 20.0 + i} for i in range(4)]
    ran(first, [*rows[:3], rows[3] | {"eval/return_mean": 50.0}], status="done", step=4000)
    ran(second, rows[:2])
    for job in (first, second):
        job.status = TRAINING
        job.read()
    first.end(Ended("runs/0", 0))
    lines = shown(grid)
    assert [line.split() for line in lines[5:9]] == [
        ["status", "progress", "step", "return", "best", "left", "job"],
        ["done", "100%", "4,000", "50.00", "50.00", "seed=0"],
        ["training", "50%", "2,000", "21.00", "0:20", "seed=1"],
        ["waiting", "seed=2"],
    ]
    assert lines[2].endswith("50.0%") and lines[3].startswith("1 of 3 jobs") and lines[3].endswith("left 1:00")
    assert lines[0].startswith("╭─ grid of 3 jobs") and lines[-1].endswith("runs ─╯")


def test_grid_panel_without_room_keeps_jobs_at_work_and_failed_jobs() -> None:
    grid = grid_of("seed=range(40)")
    for job in grid.jobs[:20]:
        job.status = "done"
    grid.jobs[3].status = FAILED
    grid.jobs[20].status = TRAINING
    lines = shown(grid, height=14)
    assert [line.split()[-1] for line in lines[6:9]] == ["seed=3", "seed=19", "seed=20"]
    assert "and 37 other jobs" in lines and "1 failed" in lines[3]
    for job in grid.jobs:
        job.status = "done"
    assert len(shown(grid)) == 6, "the table of the results follows"


def test_grid_in_a_pipe_has_lines_for_start_and_end(capsys: pytest.CaptureFixture[str]) -> None:
    job = grid_of("seed=0,1").jobs[1]
    lines = GridLines()
    lines.started(job)
    ran(job, status="done", step=4096, final_return=30.0)
    job.end(Ended("runs/1", 0))
    lines.ended(job)
    assert capsys.readouterr().out.splitlines() == [
        "job 2 of 2: seed=1   output: runs/1.log",
        "job 2 of 2: done at step 4,096, return 30.00",
    ]


@pytest.mark.usefixtures("forks")
def test_grid_with_resume_auto_continues_its_runs():
    words = ["train", "-m", *PAIR, "preset=none", "seed=0,1", "name=grid", "resume=auto", "logger=[]"]
    small = ["env.num_envs=2", "algo.loop.rollout_steps=8", "trainer.total_steps=64", "trainer.eval_every=0"]
    for stop_at in (32, 64):
        assert main([*words, *small, f"trainer.stop_at={stop_at}"]) == 0
        summaries = [json.loads(file.read_text()) for file in Path("runs/grid").glob("*/summary.json")]
        assert [summary["step"] for summary in summaries] == [stop_at, stop_at]


def job_with(algo: str, preset: str | None, env: str = "Pendulum-v1", *words: str) -> Job:
    return Job([f"algo={algo}", *words], {"preset": preset, "env": {"id": env}})


def test_grid_whose_jobs_share_a_folder_names_that_folder() -> None:
    grid = [Job([], {"run_dir": folder}) for folder in ("first", "twice", None, None, "twice")]
    with pytest.raises(ConfigError, match="run_dir=twice: the jobs of a grid cannot share a folder"):
        check_jobs(grid)


def test_unequal_presets_are_one_line_for_each_environment() -> None:
    grid = [job_with(algo, preset) for algo, preset in (("ppo", "ppo-Pendulum"), ("spo", None)) for _ in range(2)]
    (line,) = unequal_presets([*grid, job_with("ppo", None, "Hopper-v5"), job_with("spo", None, "Hopper-v5")])
    assert line == (
        "Pendulum-v1: algo=ppo has preset ppo-Pendulum, algo=spo has none, so their settings differ; preset=none makes "
        "them equal, and so does preset=ppo-Pendulum if algo=spo has the keys of that preset"
    )
    assert not [*unequal_presets([job_with("ppo", "ppo-Pendulum"), job_with("sac", "sac-Pendulum")])]
    typed = [job_with("ppo", name, "Pendulum-v1", f"preset={name}") for name in ("ppo-Pendulum", None)]
    assert not [*unequal_presets(typed)], "presets are compared"
