"""After an exception, the state at the end of an earlier tick is saved, and a run that goes on from it is exact."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from rlrun.agents.actor_critic.sac import SAC
from rlrun.agents.policy.ppo import PPO
from rlrun.cli import main
from rlrun.envs.stepping.vector import VectorEnv
from rlrun.run import crash, trainer
from rlrun.snapshot import segments
from rlrun.snapshot.store import Store, step_name

SHARED = ["preset=none", "network.hidden=[8]", "env.num_envs=2", "trainer.snapshot_every=0", "trainer.eval_every=0",
          "trainer.eval_episodes=1", "trainer.eval_max_steps=5", "trainer.log_every=20", "logger=[]",
          "trainer.engine=eager"]  # fmt: skip
SMALL_SAC = [*SHARED, "algo=sac", "env=Pendulum", "algo.loop.warmup_steps=20", "algo.loop.batch_size=8",
             "algo.buffer.capacity=48", "trainer.total_steps=160"]  # fmt: skip
SMALL_PPO = [*SHARED, "algo=ppo", "env=CartPole", "algo.loop.rollout_steps=10", "algo.minibatch_size=5",
             "trainer.total_steps=160"]  # fmt: skip


class BoomError(Exception):
    pass


@pytest.fixture(autouse=True)
def copies_of_every_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "HOLD_SHARE", float("inf"))
    monkeypatch.setattr(segments, "SEGMENT_ROWS", 8)


def fail(cls: type, method: str, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a method raise in its call number `at`."""
    calls: list[int] = []
    real = getattr(cls, method)

    def failing(self: Any, *args: Any) -> Any:
        calls.append(1)
        if len(calls) == at:
            raise BoomError("in the middle")
        return real(self, *args)

    monkeypatch.setattr(cls, method, failing)


def rows(run: Path) -> list[dict[str, Any]]:
    clocks = ("time/", "sys/", "wall_s")
    found = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [{key: value for key, value in row.items() if not key.startswith(clocks)} for row in found]


def train(run: Path, *words: str) -> int:
    return main(["train", *words, f"run_dir={run}"])


@pytest.mark.parametrize(
    ("words", "cls", "method", "at", "step"),
    [
        (SMALL_SAC, SAC, "update_actor", 100, 118),  # after the critic's step, with a full buffer
        (SMALL_SAC, VectorEnv, "step", 60, 118),
        (SMALL_PPO, PPO, "policy_loss", 70, 20),  # within the second rollout's epochs
    ],
)
def test_the_last_whole_tick_before_a_crash_is_saved_and_continued_exactly(
    words: list[str], cls: type, method: str, at: int, step: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tmp_path / "whole", *words) == 0
    run = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        fail(cls, method, at, patch)
        assert train(run, *words, "trainer.snapshot_at_crash=always") == 1
    said = capsys.readouterr().err
    assert "BoomError: in the middle" in said and f"the state of step {step} is saved" in said
    assert Store(run).names() == [step_name(step)]
    assert main(["resume", str(run)]) == 0
    assert json.loads((run / "meta.json").read_text())["resumed"][0]["verdict"] == "exact"
    assert rows(run) == rows(tmp_path / "whole")
    assert Store(run).load().digest == Store(tmp_path / "whole").load().digest


def test_nothing_is_saved_after_a_crash_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(PPO, "policy_loss", 70, monkeypatch)
    assert train(tmp_path / "run", *SMALL_PPO) == 1
    assert Store(tmp_path / "run").names() == []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stdin", "saved"),
    [(Terminal("n\n"), False), (Terminal("\n"), True), (Terminal(""), True), (io.StringIO("n"), True)],
)
def test_a_user_at_a_terminal_chooses_whether_to_save(
    stdin: io.StringIO, saved: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail(PPO, "policy_loss", 70, monkeypatch)
    monkeypatch.setattr("sys.stdin", stdin)
    assert train(tmp_path / "run", *SMALL_PPO, "trainer.snapshot_at_crash=ask") == 1
    assert Store(tmp_path / "run").names() == [step_name(20)] * saved
    said = capsys.readouterr()
    question = "BoomError: in the middle\nsave the state of step 20, from before this error? [Y/n] "
    assert (question in said.out) == stdin.isatty()
    assert f"the state of step 20 is {'not ' * (not saved)}saved" in said.err


def test_a_copy_that_cannot_be_written_leaves_the_snapshots_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail(PPO, "policy_loss", 190, monkeypatch)

    def full(*given: object) -> None:
        raise OSError(28, "No space left on device")

    real = crash.save

    def save(*given: Any) -> str:
        monkeypatch.setattr("rlrun.snapshot.store.write_folder", full)
        return real(*given)

    monkeypatch.setattr(crash, "save", save)
    words = [word for word in SMALL_PPO if not word.startswith("trainer.snapshot_every")]
    assert train(tmp_path / "run", *words, "trainer.snapshot_every=60", "trainer.snapshot_at_crash=always") == 1
    assert "the state of step 80 is not saved: step_000000080: cannot be written" in capsys.readouterr().err
    assert Store(tmp_path / "run").names() == [step_name(60)]
    assert not Store(tmp_path / "run").load().faults
