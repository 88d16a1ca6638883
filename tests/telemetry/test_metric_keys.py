"""A resumed run keeps its original metric keys, and its readers show the current keys."""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rlrun.agents.value.dqn import DQN
from rlrun.cli import main
from rlrun.config.stored import read_stored
from rlrun.formats import history
from rlrun.formats.history import FormatChange, Renamed, renamed_metrics
from rlrun.report import runs
from rlrun.telemetry import Telemetry, console
from rlrun.telemetry.console import Lines
from rlrun.telemetry.loggers import make_loggers
from rlrun.telemetry.metrics import MetricKeys, Row, read_rows
from rlrun.telemetry.view import View

ARCHIVE = Path(__file__).parents[1] / "snapshot" / "fixtures" / f"format_{history.FIRST}" / "runs" / "dqn.tar.xz"


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """Returns a run of DQN of the earliest format, killed after its snapshot of step 60."""
    with tarfile.open(ARCHIVE) as files:
        files.extractall(tmp_path, filter="data")
    return tmp_path / "killed"


@pytest.fixture
def keys_of_later_version(killed: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Simulates a next format, in which all losses of DQN have other keys. Returns these keys."""
    keys = losses([renamed_metrics(row, history.FIRST, "dqn") for row in read_rows(killed / "metrics.jsonl")])
    renamed = {key: f"loss/new_{key.removeprefix('loss/')}" for key in keys}
    change = FormatChange(metrics=tuple(Renamed(old, new, ("dqn",)) for old, new in renamed.items()))
    update = DQN.update

    def update_of_later_version(self: DQN, *args: Any) -> Any:
        metrics, priority = update(self, *args)
        return {name.replace("/", "/new_"): value for name, value in metrics.items()}, priority

    monkeypatch.setattr(DQN, "update", update_of_later_version)
    monkeypatch.setattr(history, "CHANGES", (*history.CHANGES, change))
    monkeypatch.setattr(history, "FORMAT", history.FORMAT + 1)
    return set(renamed.values())


def losses(rows: list[Row]) -> set[str]:
    return {key for row in rows for key in row if key.startswith("loss/")}


def test_resumed_run_keeps_the_metric_keys_of_its_first_format(
    killed: Path, keys_of_later_version: set[str], tmp_path: Path
) -> None:
    first_keys = losses(read_rows(killed / "metrics.jsonl"))
    branch = tmp_path / "branch"
    assert main(["resume", str(killed), "total_steps=72", "logger.tensorboard=true"]) == 0
    head = f"format: {history.FORMAT}\nmetrics_format: {history.FIRST}\n"
    assert (killed / "config.yaml").read_text().startswith(head)
    assert main(["resume", str(killed), "total_steps=80"]) == 0
    assert main(["resume", str(killed), "total_steps=88", f"into={branch}"]) == 0
    for run, end in ((killed, 80), (branch, 88)):
        rows = read_rows(run / "metrics.jsonl")
        assert rows[-1]["step"] == end
        assert losses([row for row in rows if row["step"] > 60]) == first_keys
        board = EventAccumulator(str(run / "tb"), size_guidance={"scalars": 0}).Reload()
        assert losses([dict.fromkeys(board.Tags()["scalars"])]) == first_keys
        (shown,), _ = runs.read([run])
        assert losses(shown.rows) == keys_of_later_version


@pytest.fixture
def two_formats(monkeypatch: pytest.MonkeyPatch) -> None:
    change = FormatChange(metrics=(Renamed("loss/value", "loss/critic"), Renamed("loss/temp", "loss/alpha", ("sac",))))
    monkeypatch.setattr(history, "CHANGES", (change,))
    monkeypatch.setattr(history, "FIRST", 1)
    monkeypatch.setattr(history, "FORMAT", 2)


@pytest.mark.usefixtures("two_formats")
def test_console_shows_current_keys_of_old_and_new_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Row] = []

    class Shown(Lines):
        def row(self, row: Row) -> None:
            shown.append(row)

    def open_display(title: str, run: Path, total_steps: int, past: list[Row], *lengths: int | None) -> Lines:
        shown.extend(past)
        return Shown(View(title, run, total_steps, past))

    monkeypatch.setattr(console, "open_display", open_display)
    old = {"step": 1, "wall_s": 0.5, "loss/value": 2.0, "loss/temp": 3.0}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(old) + "\n")
    resumed = Telemetry(tmp_path, make_loggers({"console": {}}), "sac", 9, 1, keys=MetricKeys(1, "sac"))
    new = {"step": 2, "wall_s": 0.7, "loss/critic": 2.5, "loss/alpha": 3.5}
    resumed.row(new)
    resumed.close({})
    assert shown == [{"step": 1, "wall_s": 0.5, "loss/critic": 2.0, "loss/alpha": 3.0}, new]
    assert read_rows(tmp_path / "metrics.jsonl") == [
        old,
        {"step": 2, "wall_s": 0.7, "loss/value": 2.5, "loss/temp": 3.5},
    ]


@pytest.mark.parametrize(
    ("head", "expected"), [("format: 1", 1), ("format: 2", 2), ("format: 2\nmetrics_format: 1", 1)]
)
@pytest.mark.usefixtures("two_formats")
def test_metrics_format_is_that_of_the_first_start(head: str, expected: int, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(f"{head}\nseed: 1\n")
    assert read_stored(tmp_path / "config.yaml")[0::2] == ({"seed": 1}, expected)
