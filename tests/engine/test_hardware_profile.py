"""The stored measurements of a machine, and the runs that use them. No test here measures time."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.exc import TorchDynamoException

from rlrun.bench import doctor_probe as measuring
from rlrun.bench.probe import MachineProbe
from rlrun.cli import main
from rlrun.config.jobs import jobs
from rlrun.config.schema import RunConfig, run_config
from rlrun.engine import hardware_profile, inductor
from rlrun.engine.hardware_profile import HardwareProfile
from rlrun.run import exactness

CPU = torch.device("cpu")
WORDS = [
    "algo=ppo", "env=CartPole", "preset=none", "algo.loop.rollout_steps=10", "algo.epochs=1", "network.hidden=[8]",
    "env.num_envs=1", "trainer.eval_every=0", "trainer.eval_episodes=1", "trainer.eval_max_steps=5",
    "trainer.snapshot_every=20", "logger=[console]",
]  # fmt: skip


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def measured(onpolicy: int | None = 100, offpolicy: int | None = None) -> HardwareProfile:
    made = HardwareProfile.of({"onpolicy": onpolicy, "offpolicy": offpolicy}, {"ppo replayed us": 2.0})
    made.save()
    return made


def run(*words: str) -> RunConfig:
    return run_config(jobs([*WORDS, "trainer.total_steps=100", *words])[0].values)


def test_hardware_profile_missing_leaves_engine_auto() -> None:
    assert hardware_profile.read() is None
    assert exactness.with_chosen_engine(run(), CPU) == run()


def test_hardware_profile_is_read_as_it_was_saved() -> None:
    made = measured()
    assert hardware_profile.read() == made
    assert hardware_profile.path().parent.name == "rlrun"
    assert json.loads(hardware_profile.path().read_text())["cores"] == made.cores


@pytest.mark.parametrize(
    ("words", "device", "engine"),
    [
        ([], "cpu", "compile"),
        (["trainer.total_steps=99"], "cpu", "auto"),  # the run would end before the time for compiling is saved
        (["trainer.engine=eager"], "cpu", "eager"),
        (["network=lstm"], "cpu", "auto"),  # measured with an mlp
        ([], "cuda", "auto"),
    ],
)
def test_engine_auto_follows_the_hardware_profile(words: list[str], device: str, engine: str) -> None:
    measured()
    config = run(*words)
    followed = exactness.with_chosen_engine(config, torch.device(device))
    assert followed == replace(config, trainer=replace(config.trainer, engine=engine))
    assert followed.trainer.precision == "fp32"


def test_hardware_profile_measures_each_loop_separately() -> None:
    sac, search = ("offpolicy", "auto", 1_000_000), ("evolution", "auto", 1_000_000)
    assert measured(offpolicy=None).engine(*sac) == "auto"
    assert measured(offpolicy=10).engine(*sac) == "compile"
    assert measured(offpolicy=10).engine(*search) == "auto"


@pytest.mark.parametrize(
    ("changes", "line"),
    [({"cpu": "Z80"}, "cpu Z80, here "), ({"cores": 999}, "cores 999, here "), ({"torch": "0.1"}, "torch 0.1, here "),
     ({"compile_from": 3}, "it cannot be read"), ({"surprise": 3}, "it cannot be read")],
)  # fmt: skip
def test_hardware_profile_of_another_machine_is_ignored_with_a_warning(
    changes: dict[str, Any], line: str, caplog: pytest.LogCaptureFixture
) -> None:
    measured()
    hardware_profile.path().write_text(json.dumps(json.loads(hardware_profile.path().read_text()) | changes))
    assert exactness.with_chosen_engine(run(), CPU).trainer.engine == "auto"
    (said,) = caplog.messages
    assert line in said and "\n" not in said


def compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inductor, "compiled_graph", lambda graph, inputs: graph.forward)


def resumed(path: Path) -> dict[str, Any]:
    assert main(["resume", str(path), "trainer.total_steps=40"]) == 0
    meta: dict[str, Any] = json.loads((path / "meta.json").read_text())
    return meta


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
@pytest.mark.parametrize("before", ["compile", "auto"])
def test_resume_keeps_the_engine_of_the_run(before: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's file is deleted or created while the run is stopped; a branch of the run keeps the engine too."""
    compiler(monkeypatch)
    if before == "compile":
        measured(onpolicy=10)
    path = tmp_path / "run"
    assert main(["train", *WORDS, "trainer.total_steps=20", f"run_dir={path}"]) == 0
    if before == "compile":
        hardware_profile.path().unlink()
    else:
        measured(onpolicy=10)
    assert main(["resume", str(path), f"into={tmp_path / 'branch'}", "trainer.total_steps=40"]) == 0
    for meta in (resumed(path), json.loads((tmp_path / "branch" / "meta.json").read_text())):
        (again,) = meta["resumed"]
        assert (meta["engine"], again["engine"], again["verdict"]) == (before, before, "exact")
    assert "engine: auto" in (path / "config.yaml").read_text()


def test_compile_from_is_the_step_where_compiling_pays_off() -> None:
    # 100 of 400 us saved, 10 / 64 updates per step: 3.2 s are saved after 204,800 steps
    found = {"ppo replayed us": 400.0, "ppo compiled us": 300.0, "ppo compiling s": 3.2}
    assert measuring.break_even_steps(found, "ppo") == 210_000
    assert measuring.break_even_steps(found | {"ppo compiled us": 370.0}, "ppo") is None, "saves too little"
    assert measuring.break_even_steps(found | {"ppo compiled us": 500.0}, "ppo") is None
    assert measuring.break_even_steps({"ppo replayed us": 400.0}, "ppo") is None, "nothing could be compiled"


@pytest.mark.parametrize("before", [None, "somewhere"])
def test_compiler_cache_of_the_user_is_used_again_after_the_probe(
    before: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(measuring.CACHE, raising=False)
    if before is not None:
        monkeypatch.setenv(measuring.CACHE, before)
    seen = []
    monkeypatch.setattr(measuring, "gemm", lambda: seen.append(os.environ[measuring.CACHE]) or {})
    monkeypatch.setattr(measuring, "engines", dict)
    monkeypatch.setattr(measuring, "threads", dict)
    measuring.probe()
    assert os.environ.get(measuring.CACHE) == before != seen[0]


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
@pytest.mark.parametrize("compiles", [True, False])
def test_probe_without_a_compiler_measures_replayed_updates(compiles: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*inputs: Any) -> Any:
        raise TorchDynamoException("no C++ compiler")

    compiler(monkeypatch)
    if not compiles:
        monkeypatch.setattr(inductor, "compiled_graph", none)
    monkeypatch.setattr(measuring, "LOOPS", {"offpolicy": "dqn"})
    monkeypatch.setattr(measuring, "medians", lambda works, clock: dict.fromkeys(works, 1.0))
    names = {"dqn replayed us", "dqn compiled us", "dqn compiling s"}
    assert set(measuring.engines()) == (names if compiles else {"dqn replayed us"})


def test_doctor_probe_saves_the_hardware_profile(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def auto() -> str:
        return next(line for line in capsys.readouterr().out.splitlines() if line.startswith("auto"))

    found = HardwareProfile.of({"onpolicy": 40_000, "offpolicy": None}, {"ppo replayed us": 2.0})
    monkeypatch.setattr(measuring, "probe", lambda: found)
    monkeypatch.setattr(MachineProbe, "take", lambda: None)
    for noisy in (True, False):
        assert hardware_profile.read() is None
        main(["doctor"])
        assert "replays kernels; rlrun doctor --probe" in auto()
        monkeypatch.setattr(MachineProbe, "unsteady", lambda probes, noisy=noisy: noisy)
        main(["doctor", "--probe"])
    assert "compiles onpolicy runs of 40,000 steps or more, else replays" in auto()
    assert hardware_profile.read() == found
    assert main(["doctor", "--prob"]) == 2
