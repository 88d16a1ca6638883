"""Snapshots without replay: what they hold, and how a run goes on from one."""

import json
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from toys import put, toy

from rlrun.cli import main
from rlrun.config.schema import run_config
from rlrun.errors import ConfigError
from rlrun.run.assemble import build_loop
from rlrun.run.dry_run import estimate
from rlrun.rundir import META
from rlrun.snapshot.store import Store

DQN = [
    "algo=prioritized_dqn", "env=CartPole", "network.hidden=[16]", "algo.loop.warmup_steps=100",
    "algo.loop.batch_size=8", "algo.loop.updates_per_step=1", "algo.buffer.capacity=5000",
    "trainer.snapshot_every=200", "trainer.eval_every=0", "trainer.eval_episodes=0", "trainer.log_every=50",
    "trainer.total_steps=400", "trainer.snapshot_replay=false", "trainer.engine=eager",
]  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A finished run of 400 steps whose snapshots hold no replay, and what it printed."""
    path = tmp_path_factory.mktemp("trained") / "run"
    printed = StringIO()
    with redirect_stdout(printed):
        assert main(["train", *DQN, "logger=[console]", f"run_dir={path}"]) == 0
    return path, printed.getvalue()


@pytest.fixture
def run(trained: tuple[Path, str], tmp_path: Path) -> Path:
    """A copy of that run."""
    return Path(copytree(trained[0], tmp_path / "run"))


def rows(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_snapshot_without_replay_holds_no_rows_or_priorities(run: Path) -> None:
    snapshot = Store(run).load()
    assert not any(key.startswith("buffer.") for key in snapshot.state)
    assert {path.suffix for path in snapshot.path.rglob("*") if path.is_file()} == {".json", ".safetensors"}


def test_a_run_says_at_the_start_that_its_snapshots_hold_no_replay(trained: tuple[Path, str]) -> None:
    assert "a resume of this run will be not exact, because its snapshots hold no replay" in trained[1]


def test_resume_without_replay_fills_the_buffer_and_says_that_it_is_not_exact(run: Path, capsys: Any) -> None:
    assert main(["resume", str(run), "total_steps=800"]) == 0
    verdict = "not exact, because step_000000400 holds no replay"
    assert json.loads((run / META).read_text())["resumed"][-1]["verdict"] == verdict
    assert f"resumed from step 400, {verdict}" in capsys.readouterr().out
    learned = [row["step"] for row in rows(run) if "loss/critic" in row]
    assert learned == [150, 200, 250, 300, 350, 400, 550, 600, 650, 700, 750, 800], "100 steps fill the buffer again"


def test_snapshot_replay_may_change_on_resume(run: Path) -> None:
    assert main(["resume", str(run), "total_steps=600", "trainer.snapshot_replay=true"]) == 0
    assert any(key.startswith("buffer.") for key in Store(run).load().state)
    assert main(["resume", str(run), "total_steps=800"]) == 0
    assert json.loads((run / META).read_text())["resumed"][-1]["verdict"] == "exact"


def test_snapshots_of_data_sets_always_hold_replay() -> None:
    values = toy("iql", **{"trainer.snapshot_replay": False})
    with pytest.raises(ConfigError, match=r"^trainer\.snapshot_replay=false is not supported by algo\.loop=offline: "):
        build_loop(run_config(values))


def test_dry_run_counts_no_replay_in_snapshots_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlrun.run.dry_run.MEASURED_S", 0.05)
    values = put(toy("dqn"), {"trainer.snapshot_replay": False})
    sizes, _ = estimate(run_config(values))
    assert sizes.replay > 0 and sizes.saved == 0
