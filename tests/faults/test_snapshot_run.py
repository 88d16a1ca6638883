"""Whole runs on a full disk, and whole runs with untrusted snapshots."""

import json
import math
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from stores import forge, replace_listed, restate

from rlrun.cli import main
from rlrun.run.lifecycle import is_of_state
from rlrun.snapshot import tensors
from rlrun.snapshot.store import Store, step_name

WORDS = [
    "algo=ppo", "env=CartPole", "preset=none", "algo.loop.rollout_steps=10", "algo.epochs=1", "network.hidden=[8]",
    "env.num_envs=1", "trainer.total_steps=60", "trainer.snapshot_every=10", "trainer.eval_every=0",
    "trainer.log_every=10", "trainer.eval_episodes=1", "trainer.eval_max_steps=5", "logger=[console]",
]  # fmt: skip


class FullDisk:
    """A disk that is full for the snapshots of these steps. A run without replay checks the space once per snapshot."""

    def __init__(self, patch: pytest.MonkeyPatch, steps: range):
        self.real, self.steps, self.step = os.statvfs, steps, 0
        patch.setattr(os, "statvfs", self.ask)

    def ask(self, folder: Any) -> Any:
        self.step += 10
        room = self.real(folder)
        return os.statvfs_result([*room[:4], 10, *room[5:]]) if self.step in self.steps else room


def names(run: Path) -> list[str]:
    return [name for name in Store(run).names() if name != "best"]


def test_a_disk_that_is_full_for_a_while_costs_the_snapshots_of_that_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    FullDisk(monkeypatch, range(20, 31))
    assert main(["train", *WORDS, "trainer.snapshot_keep=9", f"run_dir={run}"]) == 0
    warnings = [line for line in "".join(capsys.readouterr()).splitlines() if "cannot be written" in line]
    assert len(warnings) == 2
    assert warnings[0].startswith(f"{step_name(20)}: cannot be written: ")
    assert warnings[0].endswith("; training continues")
    assert "MiB are needed and 16 kept for logs, 0.0 are free" in warnings[0]
    assert names(run) == [step_name(step) for step in (60, 50, 40, 10)]
    assert not Store(run).load().faults


def test_a_disk_that_stays_full_leaves_the_last_snapshot_that_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        FullDisk(patch, range(30, 99))
        assert main(["train", *WORDS, f"run_dir={run}"]) == 3
    error = capsys.readouterr().err
    assert f"error: {step_name(60)}: cannot be written: " in error and "Traceback" not in error
    assert json.loads((run / "summary.json").read_text())["status"] == "failed"
    assert names(run) == [step_name(20), step_name(10)]
    assert main(["resume", str(run)]) == 0
    assert names(run) == [step_name(60), step_name(50)]
    rows = (run / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(row)["step"] for row in rows] == [10, 20, 30, 40, 50, 60]


def test_snapshot_on_failure_stop_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    FullDisk(monkeypatch, range(30, 99))
    assert main(["train", *WORDS, "trainer.snapshot_on_failure=stop", f"run_dir={run}"]) == 3
    assert f"error: {step_name(30)}: cannot be written: " in capsys.readouterr().err
    assert json.loads((run / "summary.json").read_text())["step"] == 40
    assert names(run) == [step_name(20), step_name(10)]


def test_snapshots_of_a_number_are_kept_beside_those_of_pauses(tmp_path: Path) -> None:
    words = [word for word in WORDS if not word.startswith(("trainer.total_steps", "algo.loop.rollout_steps"))]
    words += ["algo.loop.rollout_steps=5", "trainer.num_snapshots=4", "trainer.snapshot_keep=1"]
    words += ["trainer.total_steps=50"]
    run = tmp_path / "run"
    assert main(["train", *words, "trainer.stop_at=20", f"run_dir={run}"]) == 0
    assert main(["resume", str(run), "trainer.stop_at=30"]) == 0
    assert names(run) == [step_name(step) for step in (30, 25, 15)]
    assert main(["resume", str(run)]) == 0
    assert names(run) == [step_name(step) for step in (50, 40, 25, 15)]


def test_a_number_of_snapshots_without_snapshots_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [word for word in WORDS if not word.startswith("trainer.snapshot_every")]
    words += ["trainer.num_snapshots=4", "trainer.snapshot_every=null", f"run_dir={tmp_path / 'run'}"]
    assert main(["train", *words]) == 2
    why = "error: trainer.num_snapshots=4: contradicts trainer.snapshot_every=null, no snapshots\n"
    assert capsys.readouterr().err == why and not (tmp_path / "run").exists()


def test_a_run_that_fails_has_the_snapshot_that_was_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, real, seen = tmp_path / "run", Store.save, []

    def save(self: Store, *args: Any, **given: Any) -> None:
        real(self, *args, **given)
        seen.append(args)
        if len(seen) == 3:
            raise ZeroDivisionError

    monkeypatch.setattr(Store, "save", save)
    assert main(["train", *WORDS, f"run_dir={run}"]) == 1
    assert "ZeroDivisionError" in capsys.readouterr().err
    assert Store(run).load().name == step_name(30)


def test_the_best_and_the_latest_of_one_step_are_one_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, real, saved = tmp_path / "run", Store.save, []

    def save(self: Store, names: Any, *args: Any, **given: Any) -> None:
        saved.append(list(names))
        real(self, names, *args, **given)

    monkeypatch.setattr(Store, "save", save)
    assert main(["train", *WORDS, "trainer.snapshot_every=0", f"run_dir={run}"]) == 0
    assert saved == [["best", step_name(60)]]
    assert Store(run).load("best").digest == Store(run).load().digest


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("trained") / "run"
    assert main(["train", *WORDS, "trainer.total_steps=20", "trainer.snapshot_keep=1", f"run_dir={run}"]) == 0
    shutil.rmtree(run / "snapshots/best")
    return run


def state(path: Path, module: str, **values: Any) -> None:
    """Changes the extra state of a module."""
    restate(path, lambda s: s[f"{module}._extra_state".removeprefix(".")].update(values))


def progress(path: Path, **values: Any) -> None:
    restate(path, lambda s: s["trainer._extra_state"]["progress"].update(values))


def unweigh(path: Path) -> None:
    """Replaces every weight by NaN."""
    found = tensors.load((path / "agent.safetensors").read_bytes())
    broken = {name: torch.full_like(tensor, math.nan) for name, tensor in found.items() if tensor.is_floating_point()}
    replace_listed(path, "agent.safetensors", b"".join(map(bytes, tensors.dump(found | broken))))
    restate(path, lambda s: None)


STRANGERS = {
    "no header": lambda path: forge(path, lambda m: m.update(header={})),
    "a step that is none": lambda path: forge(path, lambda m: m["header"].update(step="9" * 99)),
    "no clocks": lambda path: forge(path, lambda m: m.update(clocks={})),
    "a clock that is none": lambda path: forge(path, lambda m: m["clocks"].update(wall_s="\x1b[2J")),
    "an agent that is another": lambda path: restate(path, lambda s: s.update(x=1)),
    "a loop without its steps": lambda path: restate(path, lambda s: s["_extra_state"].pop("steps")),
    "a trainer that remembers nothing": lambda path: restate(path, lambda s: s.pop("trainer._extra_state")),
    "episodes that are none": lambda path: restate(path, lambda s: s["trainer._extra_state"].update(progress=[1])),
    "more steps than a float can count": lambda path: state(path, "", steps={"$int": hex(1 << 2000)}),
    "more episodes than a float can count": lambda path: progress(path, episodes={"$int": hex(1 << 2000)}),
    "a best return that is no number": lambda path: progress(path, best_return={"$float": "7ff8000000000000"}),
    "a header of a step that no run reaches": lambda path: forge(path, lambda m: m["header"].update(step=1 << 63)),
    "an episode of two rewards": lambda path: state(path, "metrics", episodes=[[[1.0, 2.0], 3]]),
    "an episode whose success is a text": lambda path: state(path, "metrics", episodes=[[1.0, 3, 0, True, "yes"]]),
    "seeds that are none": lambda path: state(path, "env", seeds=[None]),
    "a negative seed": lambda path: state(path, "env", seeds=[-1]),
    "too few seeds": lambda path: state(path, "env", seeds=[]),
    "a counter of steps that is a text": lambda path: state(path, "env", steps="20"),
    "an observation of other rows": lambda path: state(
        path, "env", obs={"$array": "env._extra_state/returns"}, returns={"$array": "env._extra_state/obs"}
    ),
    "weights that are not finite": lambda path: unweigh(path),
    "a cut file": lambda path: os.truncate(path / "agent.safetensors", 100),
}


@pytest.mark.parametrize("change", STRANGERS.values(), ids=STRANGERS)
def test_untrusted_run_with_bad_content_is_refused(
    trained: Path, tmp_path: Path, change: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    change(run / "snapshots" / step_name(20))
    capsys.readouterr()
    assert main(["resume", str(run), "total_steps=40"]) == 3
    error = capsys.readouterr().err.splitlines()
    assert error[0].startswith(f"error: {step_name(20)}: ") and error[0].isprintable()
    assert [line for line in error[1:] if not line.startswith("  trace: ")] == []


@pytest.mark.parametrize("command", [["eval", "{run}"], ["train", *WORDS, "init_from={run}", "run_dir={run}-2"]])
def test_weights_that_are_not_finite_are_neither_evaluated_nor_loaded_into_a_new_run(
    command: list[str], trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    unweigh(run / "snapshots" / step_name(20))
    assert main([word.format(run=run) for word in command]) == 2
    assert "holds numbers that are not finite" in capsys.readouterr().err


def test_replay_with_a_number_of_rows_that_is_none_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    replay = ["algo=dqn", "algo.loop.warmup_steps=10", "algo.buffer.capacity=100"]
    onpolicy = ("algo", "env.num_envs")
    words = [word for word in WORDS if not word.startswith(onpolicy)]
    assert main(["train", *replay, *words, "trainer.total_steps=20", f"run_dir={run}"]) == 0
    state(run / "snapshots" / step_name(20), "buffer.ring", total="20")
    assert main(["resume", str(run), "total_steps=40"]) == 3
    assert f"error: {step_name(20)}: does not fit this run" in capsys.readouterr().err


@pytest.fixture(scope="module")
def with_running_episodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("running") / "run"
    words = [word for word in WORDS if not word.startswith(("algo=", "env.num_envs", "trainer."))]
    words += ["algo=ppo_demos", "env.num_envs=2", "trainer.total_steps=80", "trainer.eval_episodes=0"]
    assert main(["train", *words, f"run_dir={run}"]) == 0
    return run


def join_all(running: list[Any]) -> None:
    running[:] = [running[0] + running[1]]


def swap_rewards(running: list[Any]) -> None:
    """Gives each of two pieces the rewards of the other, which are more or fewer."""
    (one, *_), (other, *_) = running
    one["reward"], other["reward"] = other["reward"], one["reward"]


def rename_values(running: list[Any]) -> None:
    running[0][0]["worth"] = running[0][0].pop("value")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (join_all, "rows of 1 environments, not of 2"),
        (swap_rewards, "the rows of a running episode have entries of different lengths"),
        (rename_values, "the rows of a running episode have other entries"),
    ],
)
def test_rows_of_running_episodes_that_do_not_fit_are_refused(
    with_running_episodes: Path, tmp_path: Path, change: Any, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run, name = tmp_path / "run", step_name(80)
    shutil.copytree(with_running_episodes, run)
    restate(run / "snapshots" / name, lambda s: change(s["_extra_state"]["open"]))
    capsys.readouterr()
    assert main(["resume", str(run), "total_steps=160"]) == 3
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"error: {name}: does not fit this run ({reason})"
    assert [line for line in lines[1:] if not line.startswith("  trace: ")] == []


def test_only_errors_of_rlrun_may_come_from_wrong_state(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_of_state(TypeError("'NoneType' object"))
    assert not any(map(is_of_state, (OSError(), MemoryError(), torch.OutOfMemoryError(), SystemExit())))
    monkeypatch.setattr("rlrun.run.lifecycle.traced", lambda error: f"{error} in my_env, line 3")
    assert not is_of_state(TypeError("'NoneType' object"))
