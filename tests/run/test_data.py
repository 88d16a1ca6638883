"""A run records digests of its data; files that a stored config names are read only with the recorded content."""

import hashlib
import json
import os
import random
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from toys import toy

from rlrun.cli import main
from rlrun.config import resumable
from rlrun.config.schema import run_config
from rlrun.config.sources import CONF
from rlrun.core.loop import Loop
from rlrun.datasets.demonstrations import write
from rlrun.envs.builtin import tables
from rlrun.envs.making.downloads import cached
from rlrun.errors import ConfigError
from rlrun.python import Run
from rlrun.run.data import check_stored_data, check_stored_sources, data_changes, data_digests

Build = Callable[..., Loop]
DIGEST = "a" * 64
QUIET = ["logger=[]"]
ROWS = [f"{i},{i * i % 7},{i % 2}\n" for i in range(40)]


@pytest.fixture(autouse=True)
def fresh_tables() -> Iterator[None]:
    """Clears the cache of tables, which are cached by path for the life of the process."""
    tables.load.cache_clear()
    yield


def table(path: Path, rows: list[str] = ROWS) -> Path:
    path.write_text("x,y,class\n" + "".join(rows))
    return path


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def command(*words: str) -> int:
    tables.load.cache_clear()
    return main([*words])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with a table and a run that was trained on it."""
    home = tmp_path_factory.mktemp("trained")
    table(home / "my.csv")
    words = ["algo=linear_posterior", "env=dataset_bandit", "env.kwargs.path=my.csv", "trainer.total_steps=40"]
    words += ["trainer.eval_every=0", *QUIET]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        assert command("train", *words, "run_dir=run") == 0
    return home


@pytest.fixture
def run(trained: Path, tmp_path: Path, monkeypatch: Any) -> Path:
    """Returns a copy of that run, with the table my.csv."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return Path("run")


def header(run: Path) -> dict[str, Any]:
    name = (run / "snapshots" / "LATEST").read_text().strip()
    values: dict[str, Any] = json.loads((run / "snapshots" / name / "manifest.json").read_text())["header"]
    return values


def verdict(run: Path) -> str:
    return str(json.loads((run / "meta.json").read_text())["resumed"][-1]["verdict"])


def edit(run: Path, **env: Any) -> None:
    """Changes the section `env` of a stored config."""
    path = run / "config.yaml"
    values = yaml.safe_load(path.read_text())
    values["env"] |= env
    path.write_text(yaml.safe_dump(values, sort_keys=False))


def one_line(capsys: Any, line: str) -> None:
    error = capsys.readouterr().err
    assert error.startswith(f"error: {line}") and error.count("\n") == 1, error


# --- tables ----------------------------------------------------------------------------------------------------------


def test_a_snapshot_holds_the_digest_of_its_table(run: Path) -> None:
    expected = {"env.kwargs.path=my.csv": sha256(Path("my.csv"))}
    assert header(run)["data"] == expected
    assert json.loads((run / "meta.json").read_text())["data"] == expected


def test_a_run_is_not_resumed_on_another_table(run: Path, capsys: Any) -> None:
    path = Path("my.csv")
    then = sha256(path)
    reordered, relabelled = ROWS[::-1], [row[:-2] + "0\n" for row in ROWS]
    for rows in (reordered, relabelled, ROWS[:9]):
        table(path, rows)
        assert command("resume", "run", "total_steps=60") == 2
        digests = f"SHA-256 {then[:12]}... then, {sha256(path)[:12]}... now"
        one_line(capsys, f"env.kwargs.path=my.csv: has changed since the run read it ({digests})")


@pytest.mark.parametrize("seed", range(25))
def test_a_run_notices_every_changed_value_of_its_table(seed: int, run: Path, capsys: Any) -> None:
    draw, lines = random.Random(seed), Path("my.csv").read_text().splitlines()
    row = draw.randrange(1, len(lines))
    cells = lines[row].split(",")
    place = draw.randrange(len(cells))
    cells[place] += draw.choice("0123456789")
    lines[row] = ",".join(cells)
    Path("my.csv").write_text("\n".join(lines) + "\n")
    assert command("resume", "run", "total_steps=60") == 2
    one_line(capsys, "env.kwargs.path=my.csv: has changed since the run read it")


def test_a_run_is_not_branched_or_evaluated_on_another_table(run: Path, capsys: Any) -> None:
    table(Path("my.csv"), ROWS[::-1])
    for words in (["resume", "run", "total_steps=60", "into=other"], ["eval", "run", "episodes=2"]):
        assert command(*words) == 2
        one_line(capsys, "env.kwargs.path=my.csv: has changed since the run read it")
    assert not Path("other").exists()


def test_environments_of_a_run_are_not_made_from_another_table(run: Path) -> None:
    one: Any = Run(run).make_env(num_envs=2)
    assert one.reset(seed=0)[0].shape[0] == 2
    with pytest.raises(ConfigError, match=r"has no single environments, only a simulator for all; set num_envs=1$"):
        Run(run).make_env()
    table(Path("my.csv"), ROWS[::-1])
    with pytest.raises(ConfigError, match=r"^env\.kwargs\.path=my\.csv: has changed since the run read it"):
        Run(run).make_env(num_envs=2)


def test_a_run_is_resumed_on_the_same_table(run: Path) -> None:
    table(Path("my.csv"))
    assert command("resume", "run", "total_steps=60") == 0 and verdict(run) == "exact"
    assert command("eval", "run", "episodes=2") == 0


def test_a_table_that_is_gone_or_would_block_is_one_line(run: Path, capsys: Any) -> None:
    Path("my.csv").unlink()
    assert command("resume", "run", "total_steps=60") == 2
    one_line(capsys, "env.kwargs.path=my.csv: no such file")
    os.mkfifo("my.csv")
    for words in (["resume", "run", "total_steps=60"], ["eval", "run", "episodes=2"]):
        assert command(*words) == 2
        one_line(capsys, "env.kwargs.path=my.csv: not a regular file")


@pytest.mark.parametrize("section", ["kwargs", "eval_kwargs"])
def test_a_stored_config_has_no_other_file_read(
    section: str, run: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resumable, "check_unchanged", lambda run, then: None)  # the snapshots are forged consistently
    table(Path("secret.csv"), ["hunter2,1,0\n", "hunter3,2,1\n"])
    before = yaml.safe_load((run / "config.yaml").read_text())["env"][section]
    edit(run, **{section: before | {"path": "secret.csv"}})
    for words in (["resume", "run", "total_steps=60"], ["eval", "run", "episodes=2"]):
        assert command(*words) == 2
        one_line(capsys, f"env.{section}.path=secret.csv: not read, because the run has not recorded its digest")


def test_a_typed_table_is_evaluated_on(run: Path) -> None:
    table(Path("other.csv"), ROWS[:10])
    Path("my.csv").unlink()
    assert command("eval", "run", "episodes=2", "env.kwargs.path=other.csv") == 0


def test_the_table_of_evaluations_is_a_part_of_the_run(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    here, there = table(Path("train.csv")), table(Path("test.csv"), ROWS[::-1])
    words = ["algo=linear_posterior", "env=dataset_bandit", "env.kwargs.path=train.csv", "trainer.total_steps=20"]
    words += ["env.eval_kwargs.path=test.csv", "trainer.eval_every=10", "trainer.eval_episodes=2", *QUIET]
    assert command("train", *words, "run_dir=run") == 0
    names = {"env.kwargs.path=train.csv": sha256(here), "env.eval_kwargs.path=test.csv": sha256(there)}
    assert header(Path("run"))["data"] == names
    here.unlink()
    assert command("eval", "run", "episodes=2") == 0, "it does not read the other one"
    table(here)
    table(there, ROWS[:5])
    capsys.readouterr()
    for line in (["eval", "run"], ["resume", "run", "total_steps=30"]):
        assert command(*line) == 2
        one_line(capsys, "env.eval_kwargs.path=test.csv: has changed since the run read it")


def test_a_run_without_a_snapshot_reads_what_it_has_recorded(run: Path, capsys: Any) -> None:
    shutil.rmtree(run / "snapshots")
    (run / "summary.json").unlink()
    assert command("resume", "run") == 0
    shutil.rmtree(run / "snapshots")
    (run / "meta.json").write_text("{}")
    capsys.readouterr()
    assert command("resume", "run") == 2
    one_line(capsys, "env.kwargs.path=my.csv: not read, because the run has not recorded")


def test_a_requeued_command_begins_again_though_nothing_was_recorded(run: Path, capsys: Any) -> None:
    words = ["train", "algo=linear_posterior", "env=dataset_bandit", "env.kwargs.path=my.csv", "trainer.total_steps=20"]
    words += ["trainer.eval_every=0", "resume=auto", "run_dir=other", *QUIET]
    assert command(*words) == 0
    shutil.rmtree("other/snapshots")  # like a run that was killed before its first step
    for name in ("meta.json", "summary.json"):
        Path("other", name).unlink()
    assert command(*words) == 0
    assert "no snapshot yet" in capsys.readouterr().out


# --- downloads -------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_network(monkeypatch: Any, tmp_path: Path) -> list[Any]:
    """Lists all attempted connections and look-ups; the cache is a folder of the test."""
    tried: list[Any] = []

    def refuse(*what: Any, **_: Any) -> None:
        tried.append(what)
        raise OSError("no network in this test")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    return tried


@pytest.mark.parametrize("section", ["kwargs", "eval_kwargs"])
def test_a_stored_config_sends_no_request(section: str, run: Path, no_network: list[Any], capsys: Any) -> None:
    source = {"url": "https://strange.example/a.csv", "sha256": DIGEST}
    edit(run, id="rlrun/MushroomBandit-v0", **{section: {"path": None, "download": True, "source": source}})
    for words in (
        ["eval", "run", "episodes=1", "env.kwargs.download=true"],
        ["resume", "run", "total_steps=60"],
        ["resume", "run", "total_steps=60", "into=other"],
    ):
        assert command(*words) == 2
        one_line(capsys, f"env.{section}.source={source}: a stored config must not start this download")
    assert not no_network and not Path("cache").exists() and not Path("other").exists()


@pytest.mark.parametrize(
    "source",
    [
        {"url": "http://127.0.0.1:9/a", "sha256": "x"},
        {"url": "file:///etc/passwd", "sha256": DIGEST},
        {"url": "https://strange.example/a.csv", "sha256": "../../aa"},
        {"url": "https://strange.example/a.csv"},
        {"url": "https://strange.example/a.csv", "sha256": DIGEST, "more": 1},
        "https://strange.example/a.csv",
        5,
    ],
    ids=str,
)
def test_a_source_of_another_form_is_refused(source: Any, no_network: list[Any]) -> None:
    with pytest.raises(ConfigError, match=r"^env\.kwargs\.source=.*: a stored config must not start this download"):
        check_stored_sources({"env": {"id": "rlrun/DatasetBandit-v0", "kwargs": {"source": source}}})
    assert not no_network


def test_sources_of_rlrun_and_of_the_cache_may_be_stored(no_network: list[Any]) -> None:
    for path in sorted((CONF / "env").glob("*.yaml")):
        env = yaml.safe_load(path.read_text())
        check_stored_sources({"env": {"id": "rlrun/DatasetBandit-v0", "kwargs": env.get("kwargs") or {}}})
    stored = {
        "env": {"id": "m:rlrun/DatasetBandit-v0", "kwargs": {"source": {"url": "https://a.b/c", "sha256": DIGEST}}}
    }
    with pytest.raises(ConfigError, match="must not start this download"):
        check_stored_sources(stored)
    cached(DIGEST).parent.mkdir(parents=True)
    cached(DIGEST).touch()
    check_stored_sources(stored)
    stored["env"]["kwargs"]["force_download"] = True
    with pytest.raises(ConfigError, match="must not start this download"):
        check_stored_sources(stored)
    check_stored_sources({"env": {"id": "Other-v0", "kwargs": {"source": {"url": "http://their.own/business"}}}})
    for strange in ({}, {"env": 5}, {"env": {"id": "rlrun/DatasetBandit-v0", "kwargs": 5}}, {"env": {"id": 5}}):
        check_stored_sources(strange)


# --- data sets -------------------------------------------------------------------------------------------------------


@pytest.fixture
def data(build: Build, tmp_path: Path) -> Path:
    """A copy of the data set of a toy."""
    pytest.importorskip("minari")
    shutil.copytree(toy("iql")["algo"]["loop"]["data"], tmp_path / "data-v0")
    return tmp_path / "data-v0"


@pytest.mark.parametrize("algo", ["iql", "sac_from_data"])
def test_a_loop_reports_the_data_sets_that_it_read(algo: str, build: Build, data: Path) -> None:
    loop = build(toy(algo, **{"algo.loop.data": str(data)}))
    (name, digest), *none = data_digests(loop).items()
    assert name == f"algo.loop.data={data}" and len(digest) == 64 and not none
    other = build(toy(algo, **{"algo.loop.data": str(data)}), begin=False)
    other.set_extra_state(loop.get_extra_state())
    assert data_digests(other) == data_digests(loop) and not data_changes(other)


def test_demonstrations_are_reported(build: Build, tmp_path: Path) -> None:
    pytest.importorskip("minari")
    loop: Any = build(toy("ppo_demos"))
    rows = torch.rand(4, *loop.env.spec.obs.shape)
    action = torch.zeros(3, *loop.env.spec.action.shape, dtype=torch.int64)
    write(
        tmp_path / "shown-v0", [{"obs": rows, "action": action, "reward": torch.ones(3), "terminated": True}], loop.env
    )
    loop = build(toy("ppo_demos", **{"algo.buffer.given": str(tmp_path / "shown-v0")}))
    assert list(data_digests(loop)) == [f"algo.buffer.given={tmp_path / 'shown-v0'}"]
    (tmp_path / "shown-v0" / "data" / "more").touch()
    other = build(toy("ppo_demos", **{"algo.buffer.given": str(tmp_path / "shown-v0")}), begin=False)
    other.load_state_dict(loop.state_dict())
    (line,) = data_changes(other)
    assert line.startswith(f"algo.buffer.given={tmp_path / 'shown-v0'}: has changed since the run read it")


def test_a_loop_without_data_reports_none(build: Build) -> None:
    assert data_digests(build(toy("sac"))) == {}


@pytest.fixture
def offline(tmp_path: Path, data: Path) -> Path:
    """Returns a run that was trained on a data set."""
    words = ["algo=iql", "env=Pendulum", "env.num_envs=2", f"algo.loop.data={data}", "algo.loop.data_steps=8"]
    words += ["network.hidden=[8]", "trainer.total_steps=4", "trainer.eval_every=0", *QUIET]
    assert command("train", *words, f"run_dir={tmp_path / 'run'}") == 0
    return tmp_path / "run"


def test_a_changed_data_set_is_named_and_one_that_is_gone_is_not_needed(offline: Path, data: Path) -> None:
    assert list(header(offline)["data"]) == [f"algo.loop.data={data}"]
    shutil.move(data, data.with_name("away"))
    assert command("resume", str(offline), "total_steps=6") == 0 and verdict(offline) == "exact"
    shutil.move(data.with_name("away"), data)
    assert command("resume", str(offline), "total_steps=8") == 0 and verdict(offline) == "exact"
    (data / "data" / "more").touch()
    assert command("resume", str(offline), "total_steps=10") == 0
    changed = f"algo.loop.data={data}: has changed since the run read it"
    assert verdict(offline).startswith(f"not exact, because {changed}")


def test_a_run_that_never_saved_begins_with_the_recorded_data_set_only(offline: Path, data: Path, capsys: Any) -> None:
    shutil.rmtree(offline / "snapshots")
    (offline / "summary.json").unlink()
    (data / "data" / "more").touch()
    capsys.readouterr()
    assert command("resume", str(offline)) == 2
    one_line(capsys, f"algo.loop.data={data}: has changed since the run read it")
    (data / "data" / "more").unlink()
    assert command("resume", str(offline)) == 0


@pytest.mark.parametrize("recorded", [None, [], 5, {"algo.loop.data=x": 5}])
def test_a_record_that_is_none_is_no_record(recorded: Any, tmp_path: Path) -> None:
    config = run_config(toy("iql", **{"algo.loop.data": str(tmp_path)}))
    with pytest.raises(ConfigError, match="not read, because the run has not recorded its digest"):
        check_stored_data(config, recorded, "begin")
    check_stored_data(config, recorded, "resume")
    check_stored_data(config, recorded, "begin", typed=True)
