"""`rlrun train --dry-run`: what it prints, that it writes nothing, and that a real run agrees with it."""

import math
import os
from pathlib import Path
from typing import Any

import pytest

from rlrun.cli import main
from rlrun.config.jobs import jobs
from rlrun.config.schema import run_config
from rlrun.run import dry_run
from rlrun.run.counts import Counts
from rlrun.run.dry_run import Times, estimate, num_evaluations
from rlrun.snapshot import manifest

DQN = [
    "algo=dqn", "env=CartPole", "network.hidden=[16]", "algo.loop.warmup_steps=100", "algo.loop.batch_size=8",
    "algo.buffer.capacity=500", "trainer.total_steps=900", "trainer.snapshot_every=300", "trainer.eval_every=450",
    "trainer.eval_episodes=2", "logger=[]",
]  # fmt: skip


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(dry_run, "MEASURED_S", 0.1)


def say(capsys: Any, *words: str) -> tuple[int, list[str], list[str]]:
    code = main(words)
    out, err = capsys.readouterr()
    return code, out.splitlines(), err.splitlines()


def test_dry_run_writes_nothing_and_prints_each_quantity_once(tmp_path: Path, capsys: Any) -> None:
    code, out, err = say(capsys, "train", *DQN, "--dry-run")
    assert (code, err) == (0, []) and not list(tmp_path.iterdir())
    table = {line.split()[0]: line for line in out[:-1]}
    assert [*table] == ["folder", "files", "parameters", "replay", "memory", "snapshot", "disk", "time", "not"]
    assert "runs/dqn-CartPole/<UTC time>-s0-<4 hex digits>" in table["folder"]
    assert table["files"].endswith(" summary.json, snapshots/")
    assert "q 114, target_network 114; 114 are learned" in table["parameters"]  # 4 * 16 + 16 + 16 * 2 + 2
    assert table["time"].startswith("time") and "for 900 steps at" in table["time"]
    assert "the first 100 at" in table["time"]
    assert "2 evaluations of 2 episodes" in table["not"]


def test_dry_run_of_one_step_says_so(capsys: Any) -> None:
    words = [word for word in DQN if "total_steps" not in word]
    assert " for 1 step at " in "".join(say(capsys, "train", *words, "env.num_envs=1", "total_steps=1", "--dry-run")[1])


def test_dry_run_of_a_sweep_estimates_every_job(capsys: Any) -> None:
    code, out, _ = say(capsys, "train", "-m", *DQN, "seed=0,1", "trainer.snapshot_every=null", "--dry-run")
    assert code == 0 and [line for line in out if line.startswith("job ")][1].startswith("job 2 of 2: algo=dqn")
    assert sum(line.startswith("disk") for line in out) == 2 and not any(line.startswith("snapshot") for line in out)


def test_dry_run_refuses_what_training_refuses(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "config.yaml").write_text("")
    code, out, err = say(capsys, "train", *DQN, "run_dir=used", "--dry-run")
    assert (code, out) == (2, []) and err[0].startswith("error: run_dir=used already holds a run")
    assert say(capsys, "train", *DQN, "algo.gamma=2", "--dry-run")[0] == 2
    assert say(capsys, "train", *DQN, "init_from=nowhere", "--dry-run")[0] == 2
    assert sorted(os.listdir(tmp_path)) == ["used"]


def test_a_run_takes_the_space_that_the_dry_run_estimated(tmp_path: Path) -> None:
    (job,) = jobs(DQN)
    sizes, times = estimate(run_config(job.values))
    assert main(["train", *DQN, "run_dir=r"]) == 0
    written = {file.stat().st_ino: file.stat().st_size for file in (tmp_path / "r").rglob("*") if file.is_file()}
    total = sum(written.values())
    assert total <= sizes.disk < 3 * total
    folder = tmp_path / "r" / "snapshots" / "step_000000900"
    (table,) = manifest.verify(folder)[0].rings.values()
    assert sizes.replay == table.row_bytes * 500
    assert sizes.snapshot == pytest.approx(sum(file.stat().st_size for file in folder.glob("*.*s*")), rel=0.4)
    assert sizes.memory > sizes.replay and sizes.rollout == 0
    assert times.warmup_steps == 100 and times.steps == 800 and 0 < times.warmup_step < times.step < 1


def test_dry_run_of_a_rollout_measures_its_batch(tmp_path: Path) -> None:
    words = "algo=ppo env=CartPole env.num_envs=2 algo.loop.rollout_steps=32 algo.minibatch_size=32 total_steps=65"
    (job,) = jobs([*words.split(), "trainer.eval_episodes=0"])
    config = run_config(job.values)
    sizes, times = estimate(config)
    assert sizes.replay == 0 and 2 * 32 * 36 <= sizes.rollout < 2 * 32 * 100, "36 bytes are observations and reward"
    assert times.steps == 128, "a run ends after a whole rollout"
    assert times.warmup_steps == 0 and math.isfinite(times.total) and num_evaluations(config.trainer, times.end) == 0


def test_dry_run_measures_a_part_of_a_long_rollout(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    words = "algo=ppo env=CartPole env.num_envs=2 algo.loop.rollout_steps=64 algo.minibatch_size=32 total_steps=65"
    (job,) = jobs([*words.split(), "trainer.eval_episodes=0"])
    config = run_config(job.values)
    whole, _ = estimate(config)
    monkeypatch.setattr(dry_run, "MEASURED_ROLLOUT", 32)
    sizes, times = estimate(config)
    assert sizes.rollout == pytest.approx(whole.rollout, rel=0.1), "a quarter of it was measured"
    assert times.steps == 128 and times.first_update == ("algo.loop.rollout_steps=64", 128)
    code, out, _ = say(capsys, "train", *words.split(), "trainer.eval_episodes=0", "--dry-run")
    hint = next(line for line in out if line.startswith("hint"))
    assert code == 0 and "the first update comes after 128 steps and the run ends after 65, so" in hint


def test_dry_run_of_a_number_of_updates_counts_the_steps_to_them(capsys: Any) -> None:
    words = ["algo=ppo", "env=CartPole", "env.num_envs=2", "algo.loop.rollout_steps=32", "algo.minibatch_size=32"]
    words += ["trainer.total_updates=5", "trainer.period_unit=updates", "trainer.eval_every=2"]
    code, out, _ = say(capsys, "train", *words, "--dry-run")
    assert code == 0 and any(" for 320 steps at" in line for line in out)
    assert any("3 evaluations of" in line for line in out)
    times = estimate(run_config(jobs(words)[0].values))[1]
    assert (times.end.steps, times.end.updates) == (320, 5)
    assert times.end.episodes > 1, "as many as in the measured steps"
    replay = [*DQN, "algo.loop.updates_per_step=0.5", "trainer.total_updates=200"]
    times = estimate(run_config(jobs(replay)[0].values))[1]
    assert (times.warmup_steps, times.steps) == (100, pytest.approx(400, abs=20)), "as by the ratio that was measured"


def test_total_time_adds_warm_up_and_updates() -> None:
    times = Times(warmup_step=0.1, step=0.5, warmup_steps=10, steps=4, end=Counts(steps=14))
    assert times.total == pytest.approx(3.0)


def test_dry_run_counts_the_state_of_environments_in_snapshots() -> None:
    words = [word for word in DQN if "env=" not in word]

    def snapshot(*more: str) -> int:
        return estimate(run_config(jobs([*words, "env=DynaMaze", *more])[0].values))[0].snapshot

    saved = snapshot("env.num_envs=3") - snapshot("env.num_envs=1")
    assert saved > 2 * 1000  # the state of two more environments, with their generators
