"""Comparison of runs, bit for bit, with runs of an older commit."""

import inspect
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from bits import same_bits
from bits.run_difference import run_difference
from bits.same_bits import Case, Comparison, DataSets, Done, Tree, cases, limits, settings
from stores import grown

from rlrun.errors import ConfigError, RlrunError
from rlrun.formats import history
from rlrun.formats.history import FormatChange, Renamed
from rlrun.settings import registry
from rlrun.snapshot.store import Store

ROOT = Path(__file__).parents[2]

# run_difference


ROWS = [{"step": 1, "wall_s": 0.5, "loss/critic": 0.25}, {"step": 2, "wall_s": 0.75, "time/updates_per_s": 9.0}]
STATE = {"agent.weight": torch.tensor([1.0, 2.0]), "loop._extra_state": {"carry": [1, {"sum": 0.0}]}}


def make_run(folder: Path, rows: list[Any] = ROWS, state: dict[str, Any] = STATE, ring_rows: int = 5) -> Path:
    """A finished run."""
    folder.mkdir()
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    store = Store(folder, keep=1)
    header = {"step": 2, "algo": "sac", "config": f"format: {history.FORMAT}\n"}
    store.save("step_000000002", state, {"buffer": grown(ring_rows)}, header, {})
    store.close()
    return folder


@pytest.fixture
def before(tmp_path: Path) -> Path:
    return make_run(tmp_path / "before")


def test_runs_that_differ_in_clocks_alone_are_equal(before: Path, tmp_path: Path) -> None:
    rows = [{"step": 1, "wall_s": 9.5, "loss/critic": 0.25}, {"step": 2, "wall_s": 9.75, "sys/rss_mb": 1.0}]
    assert run_difference(before, make_run(tmp_path / "now", rows)) == ""


def test_the_first_differing_row_and_key_are_named(before: Path, tmp_path: Path) -> None:
    rows = [{"step": 1, "wall_s": 0.5, "loss/critic": 0.25000000000000006}, {"step": 3}]
    difference = "row of step 1: loss/critic 0.25 -> 0.25000000000000006"
    assert run_difference(before, make_run(tmp_path / "now", rows)) == difference


def test_a_key_that_one_run_lacks_differs(before: Path, tmp_path: Path) -> None:
    rows = [{"step": 1}, {"step": 2, "loss/actor": 1.0}]
    assert run_difference(before, make_run(tmp_path / "a", rows)) == "row of step 1: loss/critic 0.25 -> -"
    assert run_difference(make_run(tmp_path / "b", rows), before) == "row of step 1: loss/critic - -> 0.25"


def test_a_row_that_one_run_lacks_differs(before: Path, tmp_path: Path) -> None:
    assert run_difference(before, make_run(tmp_path / "now", [{"step": 1, "loss/critic": 0.25}])) == "2 -> 1 rows"


@pytest.mark.parametrize(
    ("changed", "difference"),
    [
        ({"agent.weight": torch.tensor([1.0, 2.0000002])}, "agent.weight, 1 of"),
        ({"agent.weight": torch.tensor([1.0, 2.0]).double()}, "agent.weight, 1 of"),
        ({"agent.weight": torch.tensor([[1.0, 2.0]])}, "agent.weight, 1 of"),
        ({"loop._extra_state": {"carry": [1, {"sum": -0.0}]}}, "loop._extra_state.carry.1.sum, 1 of"),
        ({"loop._extra_state": {"carry": [True, {"sum": 0.0}]}}, "loop._extra_state.carry.0, 1 of"),
        ({"loop._extra_state": {}}, "loop._extra_state.carry.0 (gone), 3 of"),
        ({"agent.bias": torch.zeros(1)}, "agent.bias (new), 1 of"),
    ],
)
def test_differing_state_is_named(before: Path, tmp_path: Path, changed: dict[str, Any], difference: str) -> None:
    now = make_run(tmp_path / "now", state=STATE | changed)
    assert run_difference(before, now).startswith(f"state: {difference} ")


def test_differing_replay_rows_are_named(before: Path, tmp_path: Path) -> None:
    assert run_difference(before, make_run(tmp_path / "now", ring_rows=6)).startswith("state: buffer, 1 of ")


def test_differing_weights_are_named_before_other_state(tmp_path: Path) -> None:
    before, now = ({"_extra_state": value, "agent.weight": torch.tensor(value)} for value in (1.0, 2.0))
    difference = run_difference(make_run(tmp_path / "before", state=before), make_run(tmp_path / "now", state=now))
    assert difference.startswith("state: agent.weight, 2 of ")


def test_equal_nans_are_equal(tmp_path: Path) -> None:
    nan = {"agent.weight": torch.tensor(float("nan")), "loop._extra_state": {"sum": float("nan")}}
    assert run_difference(make_run(tmp_path / "before", state=nan), make_run(tmp_path / "now", state=nan)) == ""


@pytest.mark.parametrize("first", [history.FORMAT, history.FORMAT - 1], ids=["earlier", "amid the latest"])
def test_renamed_metrics_and_state_are_equal(
    before: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    rows = [{"step": 1, "loss/value": 0.25}, {"step": 2}]
    state = {"agent.scale": STATE["agent.weight"], "loop._extra_state": {"kept": [1, {"sum": 0.0}]}}
    now = make_run(tmp_path / "now", rows, state)
    assert "loss/critic" in run_difference(before, now)
    renamed = FormatChange(
        metrics=(Renamed("loss/critic", "loss/value", ("sac",)),),
        state=(Renamed("agent.weight", "agent.scale"), Renamed("loop._extra_state.carry", "loop._extra_state.kept")),
    )
    monkeypatch.setattr(history, "CHANGES", (renamed,))
    monkeypatch.setattr(history, "FIRST", first)
    monkeypatch.setattr(history, "FORMAT", first + 1)
    assert run_difference(before, now) == ""


# what is compared

VALUES = {
    "env": {"num_envs": 32},
    "trainer": {"eval_episodes": 10, "eval_max_steps": 100},
    "algo": {
        "name": "ppo",
        "gamma": 0.9,
        "target_every": None,
        "loop": {"rollout_steps": 128, "updates_per_step": 20.0, "warmup_steps": 10},
    },
}


def test_long_runs_are_limited_and_hyperparameters_kept() -> None:
    given = limits(VALUES, 2000)
    assert given.items() >= {
        "trainer.total_steps": 2000,
        "env.num_envs": 16,
        "trainer.eval_episodes": 2,
        "algo.loop.rollout_steps": 31,
        "algo.loop.updates_per_step": 0.1,
    }.items()  # fmt: skip
    assert not given.keys() & {"algo.gamma", "algo.target_every", "algo.loop.warmup_steps", "trainer.eval_max_steps"}


def test_settings_have_the_keys_of_the_older_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    renamed = (
        Renamed("algo.loop.updates_per_step", "algo.loop.update_ratio"),
        Renamed("algo.loop.warmup_steps", "algo.loop.first_update", ("sac",)),
    )
    monkeypatch.setattr(history, "CHANGES", (*history.CHANGES, FormatChange(keys=renamed)))
    monkeypatch.setattr(same_bits, "LARGEST", {"env.num_envs": 16, "algo.loop.update_ratio": 0.1})
    given = limits(VALUES, 2000)
    assert given["algo.loop.update_ratio"] == 0.1
    assert "algo.loop.updates_per_step=0.1" in settings(given, VALUES)


def test_cases_are_all_presets_and_the_algorithms_without_one() -> None:
    found = {case.name: case for case in cases([])}
    assert found["sac-Pendulum"] == Case.of_preset("sac-Pendulum")
    assert found["nop"] == Case.of_algo("nop")
    assert "sac" not in found
    files = [*(ROOT / "conf/preset").glob("*.yaml"), *(ROOT / "conf/algo").glob("[!_]*.yaml")]
    assert {case.algo for case in found.values()} >= {path.stem for path in files if path.parent.name == "algo"}
    assert all((ROOT / case.file).is_file() for case in found.values())


def test_cases_are_chosen_by_preset_or_algorithm() -> None:
    assert [case.name for case in cases(["cem", "nop", "ppo-Acrobot"])] == [
        "cem-Acrobot", "cem-CartPole", "cem-InvertedPendulum", "cem-Rosenbrock", "cem-Sphere", "ppo-Acrobot", "nop",
    ]  # fmt: skip
    with pytest.raises(ConfigError, match=r"^sca: not a preset or an algorithm; did you mean sac"):
        cases(["sca"])


def test_algorithms_are_trained_without_presets_in_a_given_environment() -> None:
    assert cases(["sac", "nop"], ("My",)) == [Case.of_algo("nop", ("My",)), Case.of_algo("sac", ("My",))]
    with pytest.raises(ConfigError, match=r"^sac-Pendulum: not a preset"):
        cases(["sac-Pendulum"], ("My",))


# what came of a comparison


class FakeTree:
    """A commit whose commands have given results; `run(words)` writes the files of a training run."""

    def __init__(self, root: Path, code: int = 0, err: str = "", run: Callable[[Path], object] = make_run):
        self.root, self.code, self.err, self.make = root, code, err, run
        self.commands: list[tuple[str, ...]] = []

    def run(self, *words: str) -> Done:
        self.commands.append(words)
        if "--cfg" in words:
            return Done(0, json.dumps(VALUES), "")
        folder = next((word for word in words if word.startswith("run_dir=")), "")
        if self.code == 0 and words[0] == "train":
            self.make(Path(folder.removeprefix("run_dir=")))
        return Done(self.code, "", self.err)


def compare(before: FakeTree, now: FakeTree, case: Case, *words: str, resume: bool = False) -> str:
    comparison = Comparison(before, now, DataSets(before.root), 2000, words, resume)  # type: ignore[arg-type]
    return str(comparison.result(case, "eager")).partition(" eager ")[2].strip()


def no_update(folder: Path) -> Path:
    return make_run(folder, [{"step": 1, "time/updates_per_s": 0.0}])


def unlike(folder: Path) -> Path:
    return make_run(folder, state=STATE | {"agent.weight": torch.zeros(2)})


NO_BOX2D = "error: env.id='LunarLander-v3': No module named 'Box2D'; pip install 'rlrun[box2d]'\n"


@pytest.mark.parametrize(
    ("before", "now", "line"),
    [
        ({}, {}, "equal"),
        ({"run": no_update}, {"run": no_update}, "equal    but the run was too short for an update; use more --steps"),
        ({}, {"run": unlike}, "DIFFERS  state: agent.weight, 1 of 4 entries differ"),
        ({"code": 2, "err": NO_BOX2D}, {"code": 2, "err": NO_BOX2D}, f"skipped  {NO_BOX2D[7:-1]}"),
        ({}, {"code": 2, "err": NO_BOX2D}, f"REFUSED  {NO_BOX2D[7:-1]}"),
        ({"code": 2, "err": "error: bad\nerror: b"}, {}, "REFUSED  at the older commit: bad"),
        ({}, {"code": 1, "err": "a warning\nKeyError: 'x'"}, "FAILED   KeyError: 'x'"),
        ({"code": -9}, {}, "FAILED   at the older commit: exit code -9"),
    ],
)
def test_same_bits_result_names_the_outcome(tmp_path: Path, before: Any, now: Any, line: str) -> None:
    assert compare(FakeTree(ROOT, **before), FakeTree(ROOT, **now), Case.of_preset("sac-Pendulum")) == line


def test_settings_hold_for_both_commits_and_replace_limits() -> None:
    before, now = FakeTree(ROOT), FakeTree(ROOT)
    compare(before, now, Case.of_preset("sac-Pendulum"), "env.num_envs=64", "algo.loop.lag=1")
    assert before.commands[0] == now.commands[0]  # which composes the values
    for command in (*before.commands, *now.commands):
        assert [word for word in command if "num_envs" in word or "lag" in word] == [
            "env.num_envs=64",
            "algo.loop.lag=1",
        ]


def test_only_the_run_of_now_is_paused_at_half_of_its_steps_and_resumed() -> None:
    before, now = FakeTree(ROOT), FakeTree(ROOT)
    assert compare(before, now, Case.of_preset("sac-Pendulum"), "seed=3", "plugins=[a]", resume=True) == "equal"
    assert not [word for words in before.commands for word in words if "stop_at" in word or word == "resume"]
    train, resumed = now.commands[1:]
    assert "trainer.stop_at=1000" in train and "trainer.total_steps=2000" in train
    assert resumed == ("resume", train[-1].removeprefix("run_dir="), "plugins=[a]")


def test_a_preset_that_the_older_commit_lacks_is_new(tmp_path: Path) -> None:
    older = FakeTree(tmp_path)
    assert compare(older, FakeTree(ROOT), Case.of_preset("sac-Pendulum")) == "new      missing at the older commit"
    assert not older.commands


def test_an_algorithm_is_trained_in_the_first_environment_that_is_not_refused() -> None:
    tree = FakeTree(ROOT, code=2)
    compare(tree, FakeTree(ROOT), Case.of_algo("nop"))
    envs = [word for words in tree.commands for word in words if word.startswith("env=") and "--cfg" not in words]
    assert envs == [f"env={env}" for env in same_bits.ENVS]


# two commits


def test_commands_of_a_commit_run_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(same_bits, "FIRST_COMMAND", ("--version",))  # imports no torch
    with Tree(ROOT, tmp_path / "folder") as tree:
        code, out, err = tree.run("train", "--cfg", "job", "algo=nop", "env=CartPole")
        assert (code, err) == (0, "")
        assert "total_steps: 1000000" in out
        assert tree.run("train", "--cfg", "job", "algo=nop", "env=CartPole", "sed=1").code == 2
        missing = tree.run("resume", "run")
        assert (missing.code, missing.line) == (2, "run: no such folder")


def test_a_commit_whose_commands_cannot_be_run_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(same_bits, "FIRST_COMMAND", ("no_command",))
    with Tree(ROOT, tmp_path / "folder") as tree, pytest.raises(RlrunError, match="its commands cannot be run"):
        tree.process.wait()
        tree.run("list")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Returns a new repository, with this source as its only commit."""
    root = tmp_path / "checkout"
    for name in ("src", "conf"):
        shutil.copytree(ROOT / name, root / name, symlinks=True)
    (root / ".gitignore").write_text("__pycache__\n")
    for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=a", "-c", "user.email=b", "commit", "-qm", "first"]):
        subprocess.run(["git", *words], cwd=root, check=True)
    return root


@pytest.mark.slow
def test_a_changed_update_rule_is_found(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(same_bits, "ROOT", checkout)
    agent = registry.lookup("algo", "q_learning")
    with (checkout / Path(inspect.getfile(agent)).relative_to(ROOT)).open("a") as file:
        file.write(f"\n\n{agent.__name__}.update = lambda self, batch, ctx: {{}}\n")
    code = same_bits.main(["HEAD", "nop", "q_learning-FrozenLake", "--steps", "60", "--engine", "eager"])
    lines = capsys.readouterr().out.splitlines()
    assert code == 1
    assert [line.split()[:3] for line in lines[:2]] == [
        ["q_learning-FrozenLake", "eager", "DIFFERS"],
        ["nop", "eager", "equal"],
    ]
    assert "agent." in lines[0]
    assert lines[2] == "2 compared with HEAD, 1 not equal"


def test_an_unknown_commit_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    monkeypatch.setattr(same_bits, "ROOT", tmp_path)
    assert same_bits.main(["nothing", "nop"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: nothing: ")
    assert error.count("\n") == 1


def test_an_unknown_option_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        same_bits.main(["HEAD", "sac", "--resme"])
    assert capsys.readouterr().err == "scripts/same_bits: error: unrecognized arguments: --resme\n"


@pytest.mark.parametrize("steps", ["0", "-1", "1.5", "x"])
def test_steps_must_be_a_whole_number(steps: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        same_bits.main(["HEAD", f"--steps={steps}"])
    assert f"{steps}: must be a whole number, at least 1" in capsys.readouterr().err
