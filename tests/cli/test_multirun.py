"""The table at the end of a sweep, whichever process ran its jobs."""

import json
from pathlib import Path

import pytest

from rlrun.cli import main
from rlrun.cli.multirun import Results, unequal_presets
from rlrun.config.jobs import Job, jobs
from rlrun.rundir import RunDir

PAIR = ["algo=ppo", "env=CartPole"]


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def ran(job, **summary):
    """Writes the files that a process leaves when it has run this job."""
    folder = RunDir.create(job.values)
    folder.write_start(job.values, job.words)
    if summary:
        (folder.path / "summary.json").write_text(json.dumps(summary))
    folder.release()
    return str(folder.path)


def test_sweep_prints_a_row_for_every_job():
    found = jobs([*PAIR, "seed=0,1,2"], multirun=True)
    ran(found[2], status="done", step=1)  # of an earlier sweep
    results = Results(found)
    second = ran(found[1], status="failed", step=2048, final_return=None, best_return=21.5)
    first = ran(found[0], status="done", step=4096, final_return=30.0, best_return=1234.5)
    assert results.rows() == [
        ("job", "status", "steps", "final", "best", "run"),
        ("seed=0", "done", "4,096", "30.00", "1,234", first),
        ("seed=1", "failed", "2,048", "", "21.50", second),
        ("seed=2", "no run", "", "", "", ""),
    ]


def test_sweep_counts_resumed_runs():
    found = jobs([*PAIR, "seed=0", "resume=auto"], multirun=True)
    path = ran(found[0], status="done", step=10)
    assert Results(found).rows()[1] == ("algo=ppo env=CartPole seed=0 resume=auto", "done", "10", "", "", path)


def test_sweep_distinguishes_jobs_by_resumable_keys():
    found = jobs([*PAIR, "total_steps=10,20"], multirun=True)
    results = Results(found)
    paths = [ran(job, status="done", step=10) for job in reversed(found)]
    assert [row[-1] for row in results.rows()[1:]] == paths[::-1]


def test_sweep_gives_equal_jobs_separate_runs():
    found = jobs([*PAIR, "seed=0,0"], multirun=True)
    results = Results(found)
    paths = {ran(job, status="done", step=10) for job in found}
    assert {row[-1] for row in results.rows()[1:]} == paths


def test_a_sweep_without_a_run_has_no_table(capsys):
    Results(jobs([*PAIR, "seed=0,1"], multirun=True)).show()
    assert capsys.readouterr().out == ""


def test_sweep_with_resume_auto_continues_its_runs():
    words = ["train", "-m", *PAIR, "preset=none", "seed=0,1", "name=grid", "resume=auto", "logger=[]"]
    small = ["env.num_envs=2", "algo.loop.rollout_steps=8", "trainer.total_steps=64", "trainer.eval_every=0"]
    for stop_at in (32, 64):
        assert main([*words, *small, f"trainer.stop_at={stop_at}"]) == 0
        summaries = [json.loads(file.read_text()) for file in Path("runs/grid").glob("*/summary.json")]
        assert [summary["step"] for summary in summaries] == [stop_at, stop_at]


def job_with(algo: str, preset: str | None, env: str = "Pendulum-v1", *words: str) -> Job:
    return Job([f"algo={algo}", *words], {"preset": preset, "env": {"id": env}})


def test_unequal_presets_are_one_line_for_each_environment() -> None:
    grid = [job_with(algo, preset) for algo, preset in (("ppo", "ppo-Pendulum"), ("spo", None)) for _ in range(2)]
    (line,) = unequal_presets([*grid, job_with("ppo", None, "Hopper-v5"), job_with("spo", None, "Hopper-v5")])
    assert line == (
        "Pendulum-v1: algo=ppo has preset ppo-Pendulum, algo=spo has none, so their settings differ; preset=none makes "
        "them equal, and so does preset=ppo-Pendulum if algo=spo has its keys"
    )
    assert not [*unequal_presets([job_with("ppo", "ppo-Pendulum"), job_with("sac", "sac-Pendulum")])]
    typed = [job_with("ppo", name, "Pendulum-v1", f"preset={name}") for name in ("ppo-Pendulum", None)]
    assert not [*unequal_presets(typed)], "presets are compared"
