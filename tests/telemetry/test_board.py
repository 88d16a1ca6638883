"""TensorBoard shows the rows of metrics.jsonl, each step once, also after a resume."""

import subprocess
import sys
import time

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rlrun.media import Image
from rlrun.telemetry import Telemetry
from rlrun.telemetry.loggers import make_loggers
from rlrun.telemetry.metrics import read_rows


def train(run, from_step, to_step, *names):
    loggers = make_loggers({name: {} for name in names or ["tensorboard"]})
    telemetry = Telemetry(run, loggers, "sac", 100, from_step)
    for step in range(from_step + 1, to_step + 1):
        critic = step + from_step / 7
        telemetry.row({"step": step, "wall_s": step * 0.5, "loss/critic": critic, "train/return_mean": 1e-3})
    telemetry.close({"status": "done"})


def scalars(run):
    board = EventAccumulator(str(run / "tb"), size_guidance={"scalars": 0}).Reload()
    return {tag: board.Scalars(tag) for tag in board.Tags()["scalars"]}


def test_board_has_every_row_once_after_a_resume(tmp_path):
    train(tmp_path, 0, 12)
    train(tmp_path, 8, 15)
    rows = read_rows(tmp_path / "metrics.jsonl")
    shown = scalars(tmp_path)
    assert [row["step"] for row in rows] == list(range(1, 16))
    assert set(shown) == {"loss/critic", "train/return_mean"}
    for tag, events in shown.items():
        assert [event.step for event in events] == [row["step"] for row in rows]
        assert [event.value for event in events] == [np.float32(row[tag]) for row in rows]


def test_board_times_are_those_of_the_run(tmp_path):
    train(tmp_path, 0, 12)
    began = time.time()
    train(tmp_path, 8, 15)
    ended = time.time()
    times = [event.wall_time for event in scalars(tmp_path)["loss/critic"]]
    assert np.diff(times) == pytest.approx(np.full(14, 0.5), abs=1e-3)
    assert began - 1e-3 < times[7] < ended + 1e-3  # the step from which the run resumed


def test_board_without_tensorboard_prints_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto.event_pb2", None)
    train(tmp_path, 0, 3, "tensorboard", "console")
    assert "logger.tensorboard is off: " in capsys.readouterr().out
    assert len(read_rows(tmp_path / "metrics.jsonl")) == 3


def test_board_imports_neither_torch_nor_tensorflow(tmp_path):
    code = f"""
import sys, threading
from pathlib import Path
from rlrun.telemetry.board import EventFile
board = EventFile(Path({str(tmp_path)!r}), "step", [])
board.write({{"step": 1, "wall_s": 0.1, "loss/x": 2.0}})
heavy = {{"torch", "tensorflow"}} & set(sys.modules)
assert not heavy and threading.active_count() == 1, heavy
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


@pytest.mark.parametrize("x", ["updates", "episodes"])
def test_board_shows_curves_and_images_over_updates_or_episodes_also_after_a_resume(tmp_path, x):
    def train(from_step, to_step):
        telemetry = Telemetry(tmp_path, make_loggers({"tensorboard": {"x": x}}), "sac", 100, from_step)
        for step in range(from_step + 1, to_step + 1):
            row = {"step": step, "wall_s": step * 0.5, "loss/critic": 1.0, f"train/{x}": 10 * step}
            if step == 2:
                del row[f"train/{x}"]  # as earlier versions wrote it
            telemetry.media(step, "custom/shot", Image(np.zeros((4, 4, 3), np.uint8)))
            telemetry.row(row)
        telemetry.close({"status": "done"})

    train(0, 5)
    train(3, 6)
    board = EventAccumulator(str(tmp_path / "tb"), size_guidance={"scalars": 0, "images": 0}).Reload()
    assert [event.step for event in board.Scalars("loss/critic")] == [10, 30, 40, 50, 60]
    assert sorted(event.step for event in board.Images("custom/shot")) == [0, 10, 10, 30, 40, 50]
