"""Loggers hold the rows of metrics.jsonl, and none of them can stop, hold up or change a run."""

import csv
import json
import os
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlrun.cli import main
from rlrun.config import sources
from rlrun.errors import ConfigError
from rlrun.settings import config
from rlrun.settings.registry import lookup, modules
from rlrun.telemetry import Telemetry, guarded_logger
from rlrun.telemetry.logger import Logger, Start
from rlrun.telemetry.loggers import make_loggers
from rlrun.telemetry.metrics import Row, read_rows

WORDS = ["algo=ppo", "env=CartPole", "preset=none", "network.hidden=[8]", "algo.loop.rollout_steps=10",
         "env.num_envs=1", "trainer.log_every=10", "trainer.eval_every=20", "trainer.eval_episodes=1",
         "trainer.snapshot_every=20"]  # fmt: skip

Out = pytest.CaptureFixture[str]


def train(run: Path, loggers: dict[str, Logger], rows: list[Row], from_step: int = 0) -> None:
    log = Telemetry(run, loggers, "sac", 100, from_step)
    for row in rows:
        log.row(row)
    log.close({"status": "done"})


def made(first: int, last: int, **more: float) -> list[Row]:
    return [{"step": step, "wall_s": step / 3, "loss/critic": 0.1 * step, **more} for step in range(first, last + 1)]


def table(run: Path) -> list[Row]:
    """Returns the rows of metrics.csv, read by the csv module."""
    with (run / "metrics.csv").open(newline="") as file:
        return [{key: float(value) for key, value in row.items() if value} for row in csv.DictReader(file)]


class Recorder(Logger):
    """Records all calls. `fails` is the method that raises."""

    @config
    class Config:
        pass

    def __init__(self, fails: str = "", local: bool = True):
        self.fails, self.calls = fails, []
        self.local = local  # type: ignore[misc]

    def _record(self, method: str, given: Any) -> None:
        self.calls.append((method, given))
        if method == self.fails:
            raise ValueError("no\nnetwork")

    def open(self, start: Start) -> None:
        self._record("open", start)

    def row(self, row: Row) -> None:
        self._record("row", row)

    def close(self, summary: dict[str, Any]) -> None:
        self._record("close", summary)


def test_csv_holds_every_row_though_columns_come_later(tmp_path: Path) -> None:
    loggers = make_loggers({"csv": {}})
    log = Telemetry(tmp_path, loggers, "sac", 100, 0)
    for row in [*made(1, 3), *made(4, 4, **{"eval/return_mean": 7.0}), *made(5, 6), *made(7, 7, note=1e-300)]:
        log.row(row)
        assert table(tmp_path) == read_rows(tmp_path / "metrics.jsonl"), "valid after every row"
    log.close({})
    header = (tmp_path / "metrics.csv").read_text().splitlines()[0]
    assert header == "step,wall_s,eval/return_mean,loss/critic,note"


def test_text_has_a_paragraph_for_every_row(tmp_path: Path) -> None:
    train(tmp_path, make_loggers({"text": {}}), made(1, 9))
    train(tmp_path, make_loggers({"text": {}}), [*made(6, 6), *made(7, 7, **{"eval/return_mean": 7.0})], from_step=5)
    paragraphs = (tmp_path / "metrics.txt").read_text().strip().split("\n\n")
    assert [text.partition("\n")[0] for text in paragraphs] == [f"step {step}" for step in range(1, 8)]
    assert [line.split() for line in paragraphs[-1].splitlines()[2:3]] == [["eval/return_mean", "7.000"]]
    assert "loss/critic" in paragraphs[0]


def test_csv_and_text_round_to_their_digits(tmp_path: Path) -> None:
    rows = made(123456, 123456, note=0.123456)
    train(tmp_path, make_loggers({"csv": {"digits": 3}, "text": {"digits": 2}}), rows)
    assert table(tmp_path) == [{"step": 123456, "wall_s": 41200.0, "loss/critic": 12300.0, "note": 0.123}]
    assert (tmp_path / "metrics.txt").read_text().split()[-2:] == ["note", "0.1"]
    assert read_rows(tmp_path / "metrics.jsonl") == rows, "all digits"


@pytest.mark.parametrize("digits", [0, 18])
def test_digits_of_loggers_have_a_range(digits: int) -> None:
    with pytest.raises(ConfigError) as raised:
        make_loggers({"csv": {"digits": digits}, "text": {"digits": digits}})
    assert [fault.split(": ")[0] for fault in raised.value.faults] == [
        f"logger.csv.digits={digits}",
        f"logger.text.digits={digits}",
    ]


def test_closed_loggers_leave_no_open_file(tmp_path: Path) -> None:
    before = len(os.listdir("/dev/fd"))
    train(tmp_path, make_loggers({"csv": {}, "text": {}, "tensorboard": {}}), made(1, 2))
    assert len(os.listdir("/dev/fd")) == before


def test_csv_holds_each_row_once_after_a_resume(tmp_path: Path) -> None:
    train(tmp_path, make_loggers({"csv": {}}), made(1, 9, note=1.0))
    train(tmp_path, make_loggers({"csv": {}}), made(6, 8), from_step=5)
    rows = read_rows(tmp_path / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert table(tmp_path) == rows


def test_deleted_csv_is_written_again(tmp_path: Path) -> None:
    log = Telemetry(tmp_path, make_loggers({"csv": {}}), "sac", 100, 0)
    for row in made(1, 6):
        (tmp_path / "metrics.csv").unlink(missing_ok=row["step"] < 4)
        log.row(row)
    log.close({})
    assert table(tmp_path) == read_rows(tmp_path / "metrics.jsonl")


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("method", ["open", "row", "close"])
def test_logger_that_raises_is_off_with_one_line(method: str, local: bool, tmp_path: Path, capsys: Out) -> None:
    broken, other = Recorder(method, local), Recorder()
    train(tmp_path, {"mine": broken, "other": other}, made(1, 3))
    assert capsys.readouterr() == ("", "logger.mine is off: ValueError: no network\n")
    assert broken.calls[-1][0] == method
    assert [call for call, _ in other.calls] == ["open", "row", "row", "row", "close"]
    assert read_rows(tmp_path / "metrics.jsonl") == made(1, 3)


def test_error_of_a_logger_is_shown_on_the_console(tmp_path: Path, capsys: Out) -> None:
    train(tmp_path, {"mine": Recorder("row"), **make_loggers({"console": {}})}, made(1, 2))
    out, err = capsys.readouterr()
    assert (out.count("logger.mine is off: ValueError: no network\n"), err) == (1, "")


class Stuck(Recorder):
    """Waits in one method until the end of the test."""

    def __init__(self, waits: str, end: threading.Event):
        super().__init__(local=False)
        self.waits, self.end = waits, end

    def _record(self, method: str, given: Any) -> None:
        super()._record(method, given)
        if method == self.waits:
            self.end.wait(10)


@pytest.fixture
def end() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.parametrize("method", ["open", "row", "close"])
def test_logger_that_hangs_does_not_hold_up_the_run(
    method: str, tmp_path: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch, end: threading.Event
) -> None:
    monkeypatch.setattr(guarded_logger, "CLOSE_S", 0.05)
    train(tmp_path, {"mine": Stuck(method, end)}, made(1, 3))
    line = "logger.mine is off: it was not done 0 seconds after the end of the run\n"
    assert capsys.readouterr() == ("", line)
    assert read_rows(tmp_path / "metrics.jsonl") == made(1, 3)


def test_logger_that_falls_behind_is_turned_off(
    tmp_path: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch, end: threading.Event
) -> None:
    monkeypatch.setattr(guarded_logger, "MOST_WAITING", 5)
    train(tmp_path, {"mine": Stuck("open", end)}, made(1, 9))
    assert capsys.readouterr().err == "logger.mine is off: it is 5 rows behind the run\n"


def test_logger_in_a_thread_receives_all_calls_and_its_lines_are_shown(tmp_path: Path, capsys: Out) -> None:
    class Talking(Recorder):
        def open(self, start: Start) -> None:
            super().open(start)
            start.say("see example.org")

    train(tmp_path, make_loggers({"csv": {}}), made(1, 2))
    logger = Talking(local=False)
    train(tmp_path, {"mine": logger}, made(3, 5), from_step=2)
    (_, start), *rows, (_, summary) = logger.calls
    assert (start.rows, start.step, summary) == (made(1, 2), 2, {"status": "done"})
    assert [row for _, row in rows] == made(3, 5)
    assert capsys.readouterr().err == "see example.org\n"


PLUGIN = """
from rlrun.settings import config
from rlrun.settings import register
from rlrun.telemetry.logger import Logger


@register("logger", "mine")
class Mine(Logger):
    @config
    class Config:
        text: str

    def open(self, start):
        self.steps = [row["step"] for row in start.rows]
        self.path = start.run / "mine.txt"

    def row(self, row):
        self.steps.append(row["step"])

    def close(self, summary):
        self.path.write_text(f"{self.cfg.text} {self.steps} {summary['status']}")
"""


def digest(run: Path) -> Any:
    """Returns all rows without clocks, and the digest of the last snapshot, which covers weights and random state."""
    rows = read_rows(run / "metrics.jsonl")
    kept = [{k: v for k, v in row.items() if not k.startswith(("wall_s", "time/", "sys/"))} for row in rows]
    last = (run / "snapshots" / "LATEST").read_text().strip()
    return kept, json.loads((run / "snapshots" / last / "manifest.json").read_text())["digest"]


def test_run_is_equal_with_and_without_loggers_and_a_plug_in_is_one(
    tmp_path: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logging_plugin" / "conf" / "logger").mkdir(parents=True)
    (tmp_path / "logging_plugin" / "__init__.py").write_text(textwrap.dedent(PLUGIN))
    (tmp_path / "logging_plugin" / "conf" / "logger" / "mine.yaml").write_text("# Mine.\nmine: {text: hello}\n")
    words = [*WORDS, "trainer.total_steps=40"]
    plugin = "plugins=[logging_plugin]"
    assert main(["train", *words, "logger=[console,csv,mine]", plugin, "run_dir=all"]) == 0
    assert (tmp_path / "all" / "mine.txt").read_text() == "hello [10, 20, 30, 40] done"
    assert main(["train", *words, "logger=[]", "run_dir=none"]) == 0
    assert digest(tmp_path / "all") == digest(tmp_path / "none")
    assert sorted(path.name for path in (tmp_path / "none").iterdir()) == [
        ".lock", "config.yaml", "meta.json", "metrics.jsonl", "overrides.yaml", "snapshots", "summary.json",
    ]  # fmt: skip
    capsys.readouterr()

    # a stored config does not switch on a logger that may send data elsewhere; what was typed again is on
    assert main(["resume", "all", "total_steps=50", plugin]) == 0
    line = "logger.mine is off, because it sends data out of the run's folder; to switch it on, resume with logger="
    assert line + "[console,csv,mine]" in capsys.readouterr().err
    assert (tmp_path / "all" / "mine.txt").read_text() == "hello [10, 20, 30, 40] done"
    assert main(["resume", "all", "total_steps=60", plugin, "logger.mine.text=again"]) == 0
    assert (tmp_path / "all" / "mine.txt").read_text() == "again [10, 20, 30, 40, 50, 60] done"
    assert main(["resume", "none", "total_steps=60", plugin, "logger=[mine,csv]"]) == 0
    assert (tmp_path / "none" / "mine.txt").read_text() == "hello [10, 20, 30, 40, 50, 60] done"
    assert table(tmp_path / "all") == read_rows(tmp_path / "all" / "metrics.jsonl")
    assert table(tmp_path / "none") == read_rows(tmp_path / "none" / "metrics.jsonl")


def test_loggers_of_the_house_have_a_file_with_their_settings() -> None:
    files = sources.options("logger", [sources.CONF])
    assert files.keys() == modules()["logger"].keys()
    for name, file in files.items():
        values = yaml.safe_load(file.read_text())
        assert list(values) == [name]
        assert values[name].keys() == lookup("logger", name).Config.__dataclass_fields__.keys()
