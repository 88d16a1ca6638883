"""`rlrun reset`: a new run with the config and the weights of another, in which all else starts anew."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from toys import toy, train

from rlrun.cli import main
from rlrun.config.stored import CONFIG, read_config
from rlrun.core.loop import Loop
from rlrun.python import Run
from rlrun.run.checkpointer import rings
from rlrun.run.weights import warm_start
from rlrun.snapshot.store import Store, step_name

Build = Callable[..., Loop]
DQN = [
    "algo=dqn", "env=CartPole", "env.selftest=off", "network.hidden=[16]", "algo.loop.warmup_steps=50",
    "algo.loop.batch_size=8", "algo.buffer.capacity=500", "trainer.total_steps=200", "trainer.snapshot_every=100",
    "trainer.eval_every=100", "trainer.eval_episodes=1", "trainer.eval_max_steps=20", "trainer.log_every=50",
    "trainer.engine=eager", "logger=[]",
]  # fmt: skip


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of 200 steps."""
    path = tmp_path_factory.mktemp("source") / "run"
    assert main(["train", *DQN, f"run_dir={path}"]) == 0
    return path


def state(run: Path) -> dict[str, Any]:
    return Store(run).load().state


def rows(run: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    clocks = ("wall_s", "time/", "sys/")
    return [{key: value for key, value in row.items() if not key.startswith(clocks)} for row in found]


def test_reset_keeps_the_weights_and_starts_everything_else_anew(source: Path, tmp_path: Path) -> None:
    assert main(["reset", str(source), f"into={tmp_path / 'new'}", "total_steps=40"]) == 0
    before, after = state(source), state(tmp_path / "new")
    for key in (key for key in before if key.startswith("agent.q.")):
        assert torch.equal(before[key], after[key]), "40 steps only fill the buffer"
    assert after["buffer.ring._extra_state"] == {"total": 40}
    assert after["_extra_state"]["steps"] == 40 and after["_extra_state"]["updates"] == 0
    assert after["agent.optim.steps"] == 0 < before["agent.optim.steps"]
    progress = after["trainer._extra_state"]["progress"]
    assert progress["best_step"] == 40, "the first evaluation is the best so far"
    first = rows(tmp_path / "new")[0]
    assert first["step"] == 40 and first["train/epsilon"] == 1.0 > rows(source)[-1]["train/epsilon"]
    config = read_config(tmp_path / "new" / CONFIG)
    assert config["algo"]["loop"]["warmup_policy"] == "agent", "the trained agent fills the buffer"


def test_reset_starts_the_state_of_exploration_anew(tmp_path: Path) -> None:
    words = ["algo=sac", "env=Pendulum", *DQN[2:], "algo.entropy.initial_alpha=0.5", "trainer.total_steps=80"]
    assert main(["train", *words, f"run_dir={tmp_path / 'source'}"]) == 0
    assert main(["reset", str(tmp_path / "source"), f"into={tmp_path / 'new'}", "total_steps=40"]) == 0
    alphas = [state(tmp_path / run)["agent.entropy.log_alpha"].exp().item() for run in ("source", "new")]
    assert alphas[1] == pytest.approx(0.5) and alphas[0] != alphas[1], "40 steps only fill the buffer"


def test_reset_twice_with_one_seed_gives_equal_rows(source: Path, tmp_path: Path) -> None:
    run = Run(source)
    words = ("trainer.total_steps=100", "trainer.eval_episodes=0")
    one, other = (run.reset(*words, into=tmp_path / name, seed=7) for name in ("one", "other"))
    assert rows(one.path) == rows(other.path) and read_config(one.path / CONFIG)["seed"] == 7
    second = one.reset(*words, into=tmp_path / "next", seed=8)
    assert rows(second.path) != rows(one.path)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "into: missing; it names the folder of the new run"),
        (["into=new", "seed=-1"], "seed=-1: must be a whole number, at least 0"),
        (["into=new", "algo.gamma=0.5"], "algo.gamma: cannot be changed in a resumed run"),
        (["into=new", "sed=1"], "sed: unknown key; did you mean seed?"),
    ],
)
def test_reset_refuses_in_one_line_and_leaves_no_folder(
    words: list[str], line: str, source: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["reset", str(source), *words]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 1 and errors[0].startswith(f"error: {line}")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("algo", "changes", "explores"),
    [
        ("a2c", {"algo.init_std": 0.3}, ["policy.log_std"]),
        ("sac", {}, ["entropy.log_alpha"]),
        ("crossq", {}, ["entropy.log_alpha"]),
        ("svpg", {}, ["particles.0.policy.log_std", "particles.1.policy.log_std"]),
        ("parameter_noise_bandit", {"algo.noise_change": 2.0}, ["noise_std", "first_pulls.done"]),
        ("neural_greedy", {"algo.init_pulls": 3}, ["first_pulls.done"]),
    ],
)
def test_fresh_exploration_loads_all_but_the_state_of_exploration(
    algo: str, changes: dict[str, Any], explores: list[str], build: Build, tmp_path: Path
) -> None:
    if algo in ("a2c", "svpg"):
        changes = changes | {"env.id": "Pendulum-v1"}
    trained, fresh = train(build(toy(algo, **changes)), 5), build(toy(algo, seed=9, **changes))
    begun = {name: value.clone() for name, value in tensors(fresh).items()}
    warm_start(saved(trained, tmp_path), fresh, fresh_exploration=True)
    source, found = tensors(trained), tensors(fresh)
    for name in explores:
        assert not torch.equal(begun[name], source[name]), name
        assert torch.equal(found[name], begun[name]), name
    learned = [name for name in found if not name.startswith(tuple(explores)) and "optim" not in name]
    learned = [name for name in learned if "entropy" not in name and "gradients" not in name]
    assert learned
    for name in learned:
        assert torch.equal(found[name], source[name]), name


def test_reset_starts_learning_rate_schedules_over(build: Build, tmp_path: Path) -> None:
    values = toy("ppo", **{"algo.schedule": {"learning_rate": {"ExponentialLR": {"gamma": 0.9}}}})
    trained, fresh = train(build(values), 3), build(values)
    warm_start(saved(trained, tmp_path), fresh, fresh_exploration=True)
    train(fresh, 2)
    assert fresh.agent.optim.learning_rate.item() == pytest.approx(0.01 * 0.9), "that of the second update"


def saved(loop: Loop, run: Path) -> Path:
    """Stores a snapshot of the loop in the folder of a run, and returns the folder."""
    store = Store(run, keep=1)
    store.save(step_name(loop.steps), loop.state_dict(), rings(loop), {"step": loop.steps}, {})
    store.close()
    return run


def tensors(loop: Loop) -> dict[str, torch.Tensor]:
    return {name: value for name, value in loop.agent.state_dict().items() if isinstance(value, torch.Tensor)}


@pytest.mark.parametrize("words", [["reset", "into=new"], ["export"], ["eval"]])
def test_snapshot_that_does_not_exist_is_a_faulty_word(
    words: list[str], source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command, *others = words
    assert main([command, str(source / "snapshots" / "nope"), *others]) == 2
    assert "snapshots/nope: no such" in capsys.readouterr().err and not Path("new").exists()
