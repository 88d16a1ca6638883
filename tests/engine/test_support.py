"""Available engines: with an untested torch version, or without its private names, `auto` runs eager with a message."""

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from toys import equal

import rlrun
from rlrun.cli import main
from rlrun.engine import support
from rlrun.rundir import META
from rlrun.snapshot.store import Store

CPU = torch.device("cpu")
WORDS = [
    "algo=dqn", "env=CartPole", "preset=none", "network.hidden=[8]", "env.num_envs=1", "algo.loop.warmup_steps=8",
    "algo.loop.batch_size=8", "algo.buffer.capacity=64", "trainer.total_steps=64", "trainer.eval_every=0",
    "trainer.eval_episodes=1", "trainer.eval_max_steps=5", "trainer.log_every=32", "logger=[console]",
]  # fmt: skip
RECORDERS = ("recorder", "script", "operations", "trial", "tape", "graphs", "inductor")

# removes names from torch, then trains a run with the words of the command line
WITHOUT = """
import sys
import torch
import torch.utils._python_dispatch as dispatch
for home, names in (
    (torch, ("_fused_adam_", "_fused_adamw_", "_foreach_lerp_", "_standard_gamma")),
    (torch.cpu, ("_is_amx_tile_supported",)),
    (dispatch, ("TorchDispatchMode", "_get_current_dispatch_mode")),
):
    for name in names:
        delattr(home, name)
from rlrun.cli import main
code = main(sys.argv[1:])
loaded = [name for name in sys.modules if name.startswith("rlrun.engine.")]
print("loaded", *(name.removeprefix("rlrun.engine.") for name in loaded))
sys.exit(code)
"""


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    """Clears the cached findings about torch before and after the test."""
    for found in (support._broken, support._warn_once):
        found.cache_clear()
    yield
    for found in (support._broken, support._warn_once):
        found.cache_clear()


def removed(monkeypatch: pytest.MonkeyPatch, home: str, name: str) -> None:
    """Removes a name from torch, so that the recorders do not find it when they are imported again."""

    def gone(self: Any) -> Any:
        raise AttributeError(f"no attribute {name!r}")

    for module in RECORDERS:
        monkeypatch.delitem(sys.modules, f"rlrun.engine.{module}", raising=False)
        monkeypatch.delattr(f"rlrun.engine.{module}", raising=False)
    module, _, holder = home.partition(":")
    if holder:
        monkeypatch.setattr(getattr(import_module(module), holder), name, property(gone), raising=False)
    else:
        monkeypatch.delattr(import_module(module), name)


def notes(text: str) -> list[str]:
    return [line for line in text.splitlines() if "runs eager here" in line]


def test_eager_trains_without_the_private_names_of_torch_and_imports_no_recorder(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT, "train", *WORDS, "trainer.engine=eager", f"run_dir={tmp_path / 'run'}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    loaded = done.stdout.splitlines()[-1].split()
    assert loaded[0] == "loaded" and "accelerate" in loaded
    assert not {*RECORDERS} & {*loaded}


NEEDED = [
    ("torch.utils._python_dispatch", "TorchDispatchMode"),
    ("torch.utils._python_dispatch", "_get_current_dispatch_mode"),
    ("torch._ops:OpOverload", "_schema"),
    ("torch:UntypedStorage", "_cdata"),
]


@pytest.mark.parametrize(("home", "name"), NEEDED)
def test_recorder_is_unsupported_without_a_private_name(home: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert support.lacking("auto", CPU) is None
    support._broken.cache_clear()
    removed(monkeypatch, home, name)
    why = support.lacking("auto", CPU)
    assert why is not None and name in why and torch.__version__ in why and "\n" not in why
    assert support.running("auto", CPU) == "eager"
    assert support.lacking("eager", CPU) is None


@pytest.mark.parametrize(
    ("home", "name"), [("torch._dynamo.exc", "TorchDynamoException"), ("torch._guards", "TracingContext")]
)
def test_only_compile_is_unsupported_if_torch_lacks_a_compiler_name(
    home: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed(monkeypatch, home, name)
    why = support.lacking("compile", CPU)
    assert why is not None and name in why
    assert support.lacking("auto", CPU) is None


def test_auto_trains_eager_with_one_warning_if_torch_lacks_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    removed(monkeypatch, "torch.utils._python_dispatch", "TorchDispatchMode")
    assert main(["train", *WORDS, f"run_dir={tmp_path / 'run'}"]) == 0
    (line,) = notes(caplog.text)
    assert "trainer.engine=auto runs eager here: torch" in line and "TorchDispatchMode" in line


def test_auto_runs_eager_with_a_torch_that_was_not_tested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for engine in ("eager", "auto"):
        if engine == "auto":
            monkeypatch.setattr(torch, "__version__", "2.99.0")
        assert main(["train", *WORDS, f"trainer.engine={engine}", f"run_dir={tmp_path / engine}"]) == 0
    (line,) = notes(caplog.text)
    assert f"torch 2.99.0 is not among the tested versions ({support.TESTED})" in line
    assert json.loads((tmp_path / "auto" / META).read_text())["engine"] == "eager", "what ran is recorded"
    eager, auto = (Store(tmp_path / engine).load().state for engine in ("eager", "auto"))
    weights = [name for name in eager if name.startswith("agent.")]
    assert weights and all(equal(eager[name], auto[name]) for name in weights)


@pytest.mark.parametrize(
    ("version", "tested"),
    [("2.9.1", False), ("2.10.0", True), ("2.13.0+cpu", True), ("2.14.1a0+git12", True), ("2.99.0", False)],
)
def test_torch_version_is_tested_against_the_range(version: str, tested: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    assert (support.lacking("auto", CPU) is None) == tested


def test_the_installed_versions_of_torch_are_the_tested_ones() -> None:
    project = Path(rlrun.__file__).parents[2] / "pyproject.toml"
    assert f'"torch{support.TESTED}"' in project.read_text()


def test_typed_engine_that_is_unsupported_is_refused_and_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    assert main(["train", *WORDS, "trainer.engine=compile", f"run_dir={tmp_path / 'run'}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "trainer.engine=compile: torch 2.99.0 is not among the tested versions" in line
    assert "trainer.engine=eager" in line
    assert not (tmp_path / "run").exists()


def test_graphs_run_eager_without_a_gpu(caplog: pytest.LogCaptureFixture) -> None:
    """So a run can be evaluated without a GPU; training is refused."""
    assert [support.running("cudagraph", CPU) for _ in range(2)] == ["eager", "eager"]
    (line,) = notes(caplog.text)
    assert "trainer.engine=cudagraph runs eager here: needs device=cuda" in line


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
def test_resume_and_eval_run_eager_if_the_engine_is_unsupported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rlrun.engine import inductor

    monkeypatch.setattr(inductor, "compiled_graph", lambda graph, inputs: graph.forward)
    run = tmp_path / "run"
    assert main(["train", *WORDS, "trainer.engine=compile", f"run_dir={run}"]) == 0
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    capsys.readouterr()
    assert main(["eval", str(run), "episodes=1"]) == 0
    assert main(["resume", str(run), "total_steps=96"]) == 2
    assert "trainer.engine=eager runs everywhere" in capsys.readouterr().err
    assert main(["resume", str(run), "total_steps=96", "trainer.engine=eager"]) == 0
    (again,) = json.loads((run / META).read_text())["resumed"]
    assert again["engine"] == "eager" and "engine compile -> eager" in again["verdict"]
