"""Arguments of a stored config's environment are tried in a worker, and must be typed again if they name files."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import breaking
import pytest
import yaml

from rlrun import memory
from rlrun.cli import main
from rlrun.config.jobs import jobs
from rlrun.config.reach import names_file, names_module
from rlrun.config.schema import run_config
from rlrun.envs.config import EnvConfig
from rlrun.envs.saving import verdicts
from rlrun.errors import ConfigError
from rlrun.run import untrusted
from rlrun.run.untrusted import check_environment

ID = "breaking:breaking/Breaking-v0"
SMALL = ["algo=ppo", "preset=none", "env.num_envs=1", "network.hidden=[8]", "algo.loop.rollout_steps=10",
         "trainer.total_steps=20", "trainer.eval_episodes=1", "trainer.eval_max_steps=5", "logger=[]"]  # fmt: skip
REASONS = {
    "raise": "RuntimeError: broken on purpose",
    "hang": "no answer within env.timeout_s=1; more time with env.timeout_s=60",
    "exit": "its process ended, exit code 7",
    "crash": "its process was ended by SIGSEGV",
    "memory": "MemoryError",
}


@pytest.fixture(autouse=True)
def nothing_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(verdicts, "_known", {})
    monkeypatch.setattr(verdicts, "_recalled", {})
    monkeypatch.setattr(untrusted, "TIMEOUT_S", 1.0)
    monkeypatch.setattr(memory, "total", lambda *_: 1 << 30)


def config(id: str = ID, **given: Any) -> EnvConfig:
    (job,) = jobs([*SMALL, f"env={id}"])
    values = job.values
    values["env"] |= given
    return run_config(values).env


@pytest.mark.parametrize("kind", [*breaking.KINDS, "memory"])
def test_arguments_with_which_an_environment_breaks_are_refused_in_one_line(kind: str) -> None:
    began = time.monotonic()
    cfg = config(kwargs={"kind": kind, "at": 2}, timeout_s=3600.0)
    with pytest.raises(ConfigError) as refused:
        check_environment(cfg, {})
    (line,) = refused.value.faults
    assert line.startswith(f"env {ID} does not work with the arguments of this config: ") and REASONS[kind] in line
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("section", ["eval_kwargs", "task_kwargs"])
def test_arguments_of_evaluations_and_tasks_are_tried(section: str) -> None:
    harmless = {"kind": "raise", "at": "never"}
    breaks = {"eval_kwargs": {"at": 1}, "task_kwargs": {"at": [1.0, 1.0]}}[section]
    check_environment(config(kwargs=harmless), {})
    with pytest.raises(ConfigError, match="broken on purpose"):
        check_environment(config(kwargs=harmless, **{section: breaks}), {})


def test_smallest_and_largest_value_of_a_schedule_are_tried() -> None:
    at = {"by": "steps", "values": [5000.0, 1000.0], "at": [0, 10]}
    kwargs = {"kind": "hang", "at": 1000}
    check_environment(config(kwargs=kwargs, schedule={"at": at}), {})
    with pytest.raises(ConfigError, match="no answer within"):
        check_environment(config(kwargs=kwargs, schedule={"at": at | {"values": [1000.0, 1.0]}}), {})
    with pytest.raises(ConfigError, match=r"env\.schedule\.__class__\.steps: cannot be scheduled"):
        check_environment(config(kwargs=kwargs, schedule={"__class__": {"steps": at}}), {})


def test_a_time_limit_that_was_typed_holds() -> None:
    with pytest.raises(ConfigError, match=r"within env.timeout_s=1.5;"):
        check_environment(config(kwargs={"kind": "hang", "at": 1}, timeout_s=1.5), {"env.timeout_s": 1.5})


def test_arguments_that_this_machine_has_tested_are_not_tried_again(monkeypatch: Any, make: Any) -> None:
    cfg = config(kwargs={"kind": "raise", "at": 50}, selftest="auto")
    make(ID, kwargs=cfg.kwargs)
    monkeypatch.setattr(untrusted, "try_environments", lambda *_: pytest.fail("tried"))
    check_environment(cfg, {})


def test_a_verdict_that_a_stored_run_brings_along_is_no_test_of_this_machine(monkeypatch: Any, make: Any) -> None:
    cfg = config(kwargs={"kind": "raise", "at": 50}, selftest="auto")
    make(ID, kwargs=cfg.kwargs)
    ((about, verdict),) = verdicts._known.items()
    verdicts._known.clear()
    monkeypatch.setattr(verdicts, "_read", lambda about: None)
    verdicts.recall(asdict(verdict))
    assert verdicts.known(about, 0.0) == verdict
    tried: list[Any] = []
    monkeypatch.setattr(untrusted, "try_environments", lambda *given: tried.append(given))
    check_environment(cfg, {})
    assert tried


def test_a_verdict_that_a_stored_run_brings_along_has_no_other_file_read(
    tmp_path: Path, monkeypatch: Any, make: Any
) -> None:
    make(ID, kwargs=config(kwargs={"kind": "raise", "at": 50}, selftest="auto").kwargs)
    ((about, verdict),) = verdicts._known.items()
    verdicts._known.clear()
    monkeypatch.setattr(verdicts, "_read", lambda about: None)
    (tmp_path / "private").write_text("secret")
    verdicts.recall(asdict(verdict) | {"files": verdict.files | {str(tmp_path / "private"): "0"}})
    monkeypatch.setattr(verdicts, "_content", lambda path: pytest.fail(f"{path} was read"))
    assert verdicts.known(about, 0.0) is None


def test_a_file_that_was_trained_with_in_another_folder_is_not_known(
    tmp_path: Path, make: Any, monkeypatch: Any
) -> None:
    for name in ("mine", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "4x4").write_text(name)
    cfg = config("FrozenLake", kwargs={"map_name": "4x4"}, wrappers={})
    monkeypatch.chdir(tmp_path / "mine")
    make(cfg.id, kwargs=cfg.kwargs)
    check_environment(cfg, {})
    monkeypatch.chdir(tmp_path / "other")
    with pytest.raises(ConfigError, match="names a file"):
        check_environment(cfg, {})


def test_an_environment_without_arguments_is_not_tried(monkeypatch: Any) -> None:
    monkeypatch.setattr(untrusted, "try_environments", lambda *_: pytest.fail("tried"))
    check_environment(config("CartPole", wrappers={}), {})


@pytest.mark.parametrize(
    ("section", "values", "key", "word"),
    [
        ("kwargs", {"xml_file": "/tmp/x.xml"}, "xml_file", "env.kwargs.xml_file=/tmp/x.xml"),
        ("kwargs", {"options": {"files": ["a", "../x"]}}, "options.files", "'env.kwargs.options.files=[a, ../x]'"),
        ("kwargs", {"files": {"/etc/passwd": 1}}, "files./etc/passwd", "env.kwargs.files./etc/passwd=1"),
        ("kwargs", {"parts": [{"mesh": "a/b"}]}, "parts", "'env.kwargs.parts=[{mesh: a/b}]'"),
        ("eval_kwargs", {"model": "~x"}, "model", "'env.eval_kwargs.model=~x'"),
        ("kwargs", {"render_mode": "human"}, "render_mode", "env.kwargs.render_mode=human"),
        ("kwargs", {"env_id": "some.module:Id-v0"}, "env_id", "env.kwargs.env_id=some.module:Id-v0"),
    ],
)
def test_files_modules_and_windows_must_be_typed_again(section: str, values: Any, key: str, word: str) -> None:
    cfg = config("CartPole", **{section: values})
    with pytest.raises(ConfigError) as refused:
        check_environment(cfg, {})
    (line,) = refused.value.faults
    assert line.endswith(f"add {word}")
    untrusted.check_typed_again({section: values}, cfg.id, {f"env.{section}.{key}": "typed"})


def test_names_of_modules_have_identifiers_before_the_colon() -> None:
    assert names_module("module:Id-v0") and names_module("some.module:Id")
    assert not any(map(names_module, ("Id-v0", "12:30", "v1.5:Id", ":Id", "a b:c")))


def test_names_of_files_are_paths_and_what_is_there(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").write_text("")
    assert names_file("a/b") and names_file("~") and names_file("model")
    assert not names_file("4x4") and not names_file("a\0b")


def test_a_stored_run_with_a_file_resumes_and_evaluates_once_it_is_typed(
    tmp_path: Path, monkeypatch: Any, capfd: Any
) -> None:
    run = tmp_path / "run"
    words = ["env=FrozenLake", "env.kwargs={map_name: 4x4}", f"run_dir={run}"]
    assert main(["train", *SMALL, *words]) == 0
    stored = yaml.safe_load((run / "config.yaml").read_text())
    assert stored["env"]["kwargs"] == {"map_name": "4x4"}
    (tmp_path / "4x4").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another machine"))
    verdicts._known.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        for command in (["eval", "run", "episodes=1"], ["resume", "run", "total_steps=40"]):
            capfd.readouterr()
            assert main(command) == 2
            line = capfd.readouterr().err
            assert line.endswith("if you trust it, add env.kwargs.map_name=4x4\n") and line.count("\n") == 1
            assert main([*command, "env.kwargs.map_name=4x4"]) == 0, capfd.readouterr().err
            verdicts._known.clear()


def test_a_file_that_was_trained_with_here_is_known_by_its_content(tmp_path: Path, make: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("4x4").write_text("as it was")
    cfg = config("FrozenLake", kwargs={"map_name": "4x4"}, wrappers={})
    make(cfg.id, kwargs=cfg.kwargs)
    check_environment(cfg, {})
    Path("4x4").write_text("forged")
    with pytest.raises(ConfigError, match="names a file"):
        check_environment(cfg, {})
