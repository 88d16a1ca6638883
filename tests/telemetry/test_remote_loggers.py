"""W&B and MLflow hold the rows of metrics.jsonl, and a resumed run goes on in the same remote run.

Most tests use stand-ins for both packages. The last ones use the packages, if they are installed, and read the rows
back with the packages' own readers.
"""

import json
import shutil
import struct
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from rlrun.cli import main
from rlrun.dotted import show
from rlrun.errors import ConfigError, quoted
from rlrun.media import Histogram, Image, Video
from rlrun.telemetry import Telemetry
from rlrun.telemetry.loggers import make_loggers, remember, stored_loggers
from rlrun.telemetry.metrics import Row, read_rows

Out = pytest.CaptureFixture[str]

WANDB = {"project": "p", "entity": None, "group": None, "tags": ["t"], "mode": "online", "git_diff": True}
MLFLOW = {"tracking_uri": "sqlite:///mlflow.db", "experiment": "e", "git_diff": True}
CONFIG = {"seed": 1, "algo": {"name": "sac", "hidden": [8, 8]}, "nothing": None}


class Server:
    """What a tracker has received: rows and status of each remote run, in the order of their creation."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Row]] = {}
        self.configs: dict[str, Any] = {}
        self.patches: dict[str, str] = {}
        self.ended: list[Any] = []
        self.media: list[str] = []
        self.logged_in = True
        self.down = False


class Given:
    """A value of a class of wandb."""

    def __init__(self, *given: Any, **settings: Any):
        self.given = given, settings


class FakeWandB:
    """The part of the package wandb that the logger uses."""

    Settings = SimpleNamespace
    run: Any = None  # a run of the program, outside of rlrun
    Image = Video = Histogram = Given

    def __init__(self, server: Server, folder: Path):
        self.server, self.folder = server, folder

    def setup(self, settings: Any) -> None: ...

    def login(self, prompt: bool) -> bool:
        assert not prompt
        return self.server.logged_in

    def teardown(self) -> None:
        self.server.ended.append("teardown")

    def init(self, id: str, config: Any, resume: str, mode: str, **other: Any) -> Any:
        assert (resume, other["project"], other["tags"]) == ("allow", "p", ["t"])
        assert other["reinit"] == "create_new"
        rows = self.server.rows.setdefault(id, [])
        self.server.configs[id] = config
        run = SimpleNamespace(id=id, dir=str(self.folder), url=f"https://wandb.example/{id}", summary={})

        def log(values: dict[str, Any], step: int = -1, commit: bool = True) -> None:
            if self.server.down:
                raise ConnectionError("no network")
            media = [name for name, value in values.items() if isinstance(value, Given)]
            self.server.media += media
            if step >= 0:
                rows.append({"step": step, **{name: values[name] for name in values if name not in media}})

        def finish(exit_code: int) -> None:
            self.server.ended.append((exit_code, run.summary))

        run.log, run.finish = log, finish
        return run


class Metric(NamedTuple):
    """As in mlflow.entities."""

    key: str
    value: float
    timestamp: int
    step: int


class Param(NamedTuple):
    """As in mlflow.entities."""

    key: str
    value: str


class FakeMLflow:
    """The part of the package mlflow that the logger uses, with a client for one server."""

    entities = SimpleNamespace(Metric=Metric, Param=Param)

    def __init__(self, server: Server):
        self.server = server

    def is_tracking_uri_set(self) -> bool:
        return False

    def MlflowClient(self, tracking_uri: str | None) -> "FakeMLflow":  # noqa: N802
        return self

    def get_experiment_by_name(self, name: str) -> None:
        assert name == "e"

    def create_experiment(self, name: str) -> str:
        return f"experiment-{name}"

    def create_run(self, experiment: str, run_name: str) -> Any:
        assert experiment == "experiment-e"
        id = f"run{len(self.server.rows)}"
        self.server.rows[id] = []
        return SimpleNamespace(info=SimpleNamespace(run_id=id))

    def update_run(self, id: str, status: str) -> None:
        assert id in self.server.rows and status == "RUNNING"

    def log_batch(self, id: str, metrics: Any = (), params: Any = ()) -> None:
        if self.server.down:
            raise ConnectionError("no network")
        if params:
            self.server.configs[id] = dict(params)
        if metrics:
            assert len({metric.step for metric in metrics}) == 1
            assert abs(metrics[0].timestamp / 1000 - time.time()) < 60, "milliseconds"
            row: Row = {metric.key: metric.value for metric in metrics}
            self.server.rows[id].append({"step": metrics[0].step, **row})

    def log_text(self, id: str, text: str, name: str) -> None:
        self.server.patches[id] = text

    def log_artifact(self, id: str, path: str, folder: str) -> None:
        self.server.media.append(Path(path).stem.partition("-")[2])

    def log_dict(self, id: str, values: Any, name: str) -> None: ...

    def set_terminated(self, id: str, status: str) -> None:
        self.server.ended.append(status)


@pytest.fixture(params=["wandb", "mlflow"])
def tracker(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Returns the name of a logger, its settings, and the server to which it sends."""
    server = Server()
    (tmp_path / "wandb_files").mkdir()
    monkeypatch.setitem(sys.modules, "wandb", FakeWandB(server, tmp_path / "wandb_files"))
    monkeypatch.setitem(sys.modules, "mlflow", FakeMLflow(server))
    settings = {"wandb": WANDB, "mlflow": MLFLOW}[request.param]
    return request.param, settings, server


def made(first: int, last: int) -> list[Row]:
    return [{"step": step, "wall_s": step / 3, "loss/critic": 0.1 * step} for step in range(first, last + 1)]


def train(run: Path, loggers: dict[str, Any], rows: list[Row], from_step: int = 0, end: str = "done") -> None:
    run.mkdir(exist_ok=True)
    log = Telemetry(run, make_loggers(loggers), "sac", 100, from_step, config=CONFIG, git_diff=lambda: "+ a line\n")
    for row in rows:
        log.row(row)
    log.close({"status": end, "best_return": None})


def test_remote_run_holds_the_rows_and_goes_on_after_a_resume(tracker: Any, tmp_path: Path) -> None:
    name, settings, server = tracker
    run = tmp_path / "run"
    train(run, {name: settings}, made(1, 6), end="stopped")
    train(run, {name: settings}, made(5, 9), from_step=4)  # the process had ended after its last snapshot, of step 4
    ((id, rows),) = server.rows.items()
    assert rows == read_rows(run / "metrics.jsonl") == made(1, 9)
    expected: Any = CONFIG
    if name == "mlflow":
        expected = {"seed": "1", "algo.name": "sac", "algo.hidden": "[8, 8]", "nothing": "null"}
    assert server.configs[id] == expected


def test_rows_that_the_remote_run_lacks_are_sent_at_a_resume(tracker: Any, tmp_path: Path) -> None:
    name, settings, server = tracker
    run = tmp_path / "run"
    train(run, {name: settings}, made(1, 3))
    train(run, {}, made(4, 6), from_step=3)
    train(run, {name: settings}, made(7, 8), from_step=6)
    assert list(server.rows.values()) == [made(1, 8)]
    other = tmp_path / "other"
    train(other, {name: settings}, [])
    train(other, {name: settings}, made(1, 2))
    assert len(server.rows) == 2, "another run has a remote run of its own"


def test_remote_run_gets_the_uncommitted_changes(tracker: Any, tmp_path: Path) -> None:
    name, settings, server = tracker
    patch = tmp_path / "wandb_files" / "diff.patch"
    train(tmp_path / "first", {name: settings | {"git_diff": False}}, made(1, 1))
    assert not server.patches and not patch.exists()
    train(tmp_path / "second", {name: settings}, made(1, 1))
    sent = [*server.patches.values()]
    if patch.exists():
        sent.append(patch.read_text())
    assert sent == ["+ a line\n"]


def test_lost_connection_is_one_line_and_later_rows_follow_at_the_resume(
    tracker: Any, tmp_path: Path, capsys: Out
) -> None:
    name, settings, server = tracker
    run = tmp_path / "run"
    train(run, {name: settings}, made(1, 3))
    capsys.readouterr()
    server.down = True
    train(run, {name: settings}, made(4, 6), from_step=3)
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if "example" not in line] == [f"logger.{name} is off: no network"]
    server.down = False
    train(run, {name: settings}, made(7, 7), from_step=6)
    assert list(server.rows.values()) == [made(1, 7)]


@pytest.mark.parametrize(
    "content", ["{}", '{"id": "../../x", "step": 1}', '{"id": "a", "step": "b"}', "[]", "{" * 9, ""]
)
def test_damaged_file_of_the_remote_run_is_one_line(tracker: Any, content: str, tmp_path: Path, capsys: Out) -> None:
    name, settings, server = tracker
    run = tmp_path / "run"
    run.mkdir()
    (run / f"{name}.json").write_text(content)
    train(run, {name: settings}, made(1, 2))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"logger.{name} is off: {run / name}.json: ")
    assert not server.rows


def test_remote_run_of_another_folder_is_not_continued(tracker: Any, tmp_path: Path, capsys: Out) -> None:
    name, settings, server = tracker
    train(tmp_path / "mine", {name: settings}, made(1, 3))
    shutil.copytree(tmp_path / "mine", tmp_path / "copy")
    train(tmp_path / "copy", {name: settings}, made(4, 6), from_step=3)
    assert f"logger.{name}: begins a new remote run, because {name}.json names one" in capsys.readouterr().err
    assert [*server.rows.values()] == [made(1, 3), made(1, 6)]
    make_loggers({name: settings})[name].trust(tmp_path / "other")  # without a file
    shutil.copytree(tmp_path / "mine", tmp_path / "other")
    make_loggers({name: settings})[name].trust(tmp_path / "other")
    train(tmp_path / "other", {name: settings}, made(4, 5), from_step=3)
    assert [*server.rows.values()] == [made(1, 5), made(1, 6)], "whose config the user has typed again"


def test_settings_of_a_stored_logger_must_be_typed_again(tracker: Any, tmp_path: Path) -> None:
    name, settings, _ = tracker
    by_name = {"logger": [name]}
    others = {"wandb": ["project", "tags", "mode"], "mlflow": ["tracking_uri", "experiment"]}[name]  # than the defaults
    typed = {f"logger.{name}.{key}": settings[key] for key in others}
    with pytest.raises(ConfigError) as refused:
        stored_loggers({name: settings}, by_name, tmp_path)
    fault = "says where a logger sends data, or which data; if you trust it, add"
    words = [quoted(f"{key}={show(value)}") for key, value in typed.items()]
    assert list(refused.value.faults) == [f"{key}: {fault} {word}" for key, word in zip(typed, words, strict=True)]
    for words_typed in (by_name | typed, {"logger": {name: settings}}):
        assert stored_loggers({name: settings}, words_typed, tmp_path).keys() == {name}

    loggers = make_loggers({name: settings})
    remember({name: settings}, loggers, tmp_path)
    assert stored_loggers({name: settings}, by_name, tmp_path).keys() == {name}, "used before in this folder"
    for changed, folder in ((settings | {others[0]: "another"}, tmp_path), (settings, tmp_path / "copy")):
        with pytest.raises(ConfigError, match=fault):
            stored_loggers({name: changed}, by_name, folder)


@pytest.mark.parametrize("file", ["wandb/settings", ".wandb/settings", "config-defaults.yaml"])
def test_wandb_reads_no_settings_in_the_current_folder(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", FakeWandB(Server(), tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / file).parent.mkdir(exist_ok=True)
    assert make_loggers({"wandb": WANDB}).keys() == {"wandb"}
    (tmp_path / file).write_text("[default]\nbase_url = http://127.0.0.1:1\n")
    with pytest.raises(ConfigError, match=f"logger.wandb: W&B would read {file} in the current folder"):
        make_loggers({"wandb": WANDB})


def test_wandb_gets_no_image_of_a_kind_that_runs_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    server = Server()
    monkeypatch.setitem(sys.modules, "wandb", FakeWandB(server, tmp_path))
    media = tmp_path / "run" / "media"
    media.mkdir(parents=True)
    (media / "000000000001-x.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 100 100\nshowpage\n")
    train(tmp_path / "run", {"wandb": WANDB}, made(3, 3), from_step=2)
    assert server.media == [] and "logger.wandb is off: " in capsys.readouterr().err


def test_mlflow_needs_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = FakeMLflow(Server())
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    with pytest.raises(ConfigError, match="needs the address of a server or a database"):
        make_loggers({"mlflow": MLFLOW | {"tracking_uri": None}})
    monkeypatch.setattr(mlflow, "is_tracking_uri_set", lambda: True)  # by $MLFLOW_TRACKING_URI or by the program
    make_loggers({"mlflow": MLFLOW | {"tracking_uri": None}})


def test_end_of_the_run_is_reported(tracker: Any, tmp_path: Path) -> None:
    name, settings, server = tracker
    for end in ("done", "stopped", "failed"):
        train(tmp_path / end, {name: settings}, made(1, 1), end=end)
    if name == "mlflow":
        assert server.ended == ["FINISHED", "KILLED", "FAILED"]
    else:
        codes = {"done": 0, "stopped": 0, "failed": 1}
        assert server.ended == [step for end, code in codes.items() for step in ((code, {"status": end}), "teardown")]


def test_run_of_the_program_in_wandb_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    wandb = FakeWandB(server, tmp_path)
    monkeypatch.setattr(wandb, "run", object())
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    train(tmp_path / "run", {"wandb": WANDB}, made(1, 2))
    assert len(server.ended) == 1 and "teardown" not in server.ended
    server.down = True
    train(tmp_path / "other", {"wandb": WANDB}, made(1, 2))
    assert "teardown" not in server.ended


def test_media_are_sent_once(tracker: Any, tmp_path: Path) -> None:
    name, settings, server = tracker
    for step in (1, 2):
        log = Telemetry(tmp_path, make_loggers({name: settings}), "sac", 9, step - 1, config=CONFIG)
        log.row(*made(step, step))
        log.media(step, f"image{step}", Image(np.zeros((2, 2, 3), dtype=np.uint8)))
        log.media(step, f"histogram{step}", Histogram(np.arange(3)))
        log.media(step, f"video{step}", Video(np.zeros((2, 2, 2, 3), dtype=np.uint8), fps=5))
        log.close({"status": "done"})
    assert server.media == ["image1", "histogram1", "video1", "image2", "histogram2", "video2"]
    assert list(server.rows.values()) == [made(1, 2)]


def test_wandb_without_a_key_is_off_and_never_asks(
    tmp_path: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server()
    monkeypatch.setitem(sys.modules, "wandb", FakeWandB(server, tmp_path))
    server.logged_in = False
    train(tmp_path / "run", {"wandb": WANDB}, made(1, 2))
    line = "logger.wandb is off: no API key; run `wandb login`, or write logger.wandb.mode=offline\n"
    assert capsys.readouterr() == ("", line)
    train(tmp_path / "run", {"wandb": WANDB | {"mode": "offline"}}, made(1, 2))
    monkeypatch.setenv("WANDB_MODE", "offline")
    train(tmp_path / "run", {"wandb": WANDB | {"mode": None}}, made(3, 4), from_step=2)
    assert list(server.rows.values()) == [made(1, 4)]


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_missing_package_is_refused_with_the_extra(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=rf"logger.{name}: .*; pip install 'rlrun\[{name}\]'"):
        make_loggers({name: {"wandb": WANDB, "mlflow": MLFLOW}[name]})


# --- the packages themselves -----------------------------------------------------------------------------------------

WORDS = ["algo=ppo", "env=CartPole", "preset=none", "network.hidden=[8]", "algo.loop.rollout_steps=10",
         "trainer.log_every=80", "trainer.eval_episodes=1"]  # fmt: skip


def rows_of_wandb(file: Path) -> list[Row]:
    """Returns the rows of an offline run. The file is a log of records in blocks of 32 KiB, as in LevelDB."""
    from wandb.proto.wandb_internal_pb2 import Record

    content = file.read_bytes()
    place, parts, rows = 7, b"", []
    while place + 7 <= len(content):
        _, length, kind = struct.unpack("<IHB", content[place : place + 7])
        if place % 32768 > 32768 - 7 or kind == 0:  # the rest of a block is empty
            place += 32768 - place % 32768
            continue
        parts += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            record = Record.FromString(parts)
            parts = b""
            if record.HasField("history"):
                items = record.history.item
                rows.append({item.key or item.nested_key[0]: json.loads(item.value_json) for item in items})
    return rows


def test_run_that_is_typed_again_goes_on_in_its_remote_run_on_another_machine(
    tracker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    name, settings, server = tracker
    words = [f"logger=[{name}]", *(f"logger.{name}.{key}={show(value)}" for key, value in settings.items())]
    words += [*WORDS, "resume=auto", f"run_dir={tmp_path / 'run'}"]
    assert main(["train", *words, "total_steps=80"]) == 0
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
    assert main(["train", *words, "total_steps=160"]) == 0
    assert "new remote run" not in capsys.readouterr().err
    assert [row["step"] for rows in server.rows.values() for row in rows] == [80, 160]


@pytest.mark.filterwarnings("ignore")
def test_wandb_offline_holds_the_rows_of_a_resumed_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.chdir(tmp_path)
    words = ["logger=[wandb]", "logger.wandb.mode=offline"]
    assert main(["train", *WORDS, *words, "total_steps=320", "run_dir=run"]) == 0
    assert main(["resume", "run", "total_steps=640", *words]) == 0
    assert capfd.readouterr() == ("", "")
    files = sorted(tmp_path.glob("wandb/offline-run-*/*.wandb"))
    assert len({file.name for file in files}) == 1 and len(files) == 2, "two files of one remote run"
    rows = []
    for file in files:
        for row in rows_of_wandb(file):
            rows.append({"step": row["_step"], **{key: row[key] for key in row if not key.startswith("_")}})
    assert rows == read_rows(tmp_path / "run" / "metrics.jsonl")
    assert len(rows) == 8


@pytest.mark.filterwarnings("ignore")
def test_mlflow_database_holds_the_rows_of_a_resumed_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    words = ["logger=[mlflow]", f"logger.mlflow.tracking_uri={uri}"]
    assert main(["train", *WORDS, *words, "total_steps=320", "run_dir=run"]) == 0
    assert main(["resume", "run", "total_steps=640", *words]) == 0
    assert capfd.readouterr() == ("", "")
    client = mlflow.MlflowClient(tracking_uri=uri)
    (run,) = client.search_runs([client.get_experiment_by_name("rlrun").experiment_id])
    rows: dict[int, Row] = {}
    for key in run.data.metrics:
        for metric in client.get_metric_history(run.info.run_id, key):
            row = rows.setdefault(metric.step, {"step": metric.step})
            assert key not in row, "each value once"
            row[key] = metric.value
    assert [rows[step] for step in sorted(rows)] == read_rows(tmp_path / "run" / "metrics.jsonl")
    assert len(rows) == 8
    assert (run.info.status, run.data.params["algo.name"]) == ("FINISHED", "ppo")
