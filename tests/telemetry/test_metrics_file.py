"""metrics.jsonl: whole lines, exact numbers, and a clean cut when a run is resumed."""

import json
import math
import os

import numpy as np
import pytest

from rlrun.errors import RunError
from rlrun.telemetry.metrics import MetricsFile, ordered, read_rows


def rows(*steps):
    return [{"step": step, "wall_s": step / 10} for step in steps]


def write(path, values):
    file = MetricsFile(path, 0)
    for row in values:
        file.append(row)
    file.close()


def test_a_row_is_readable_as_soon_as_it_is_written(tmp_path):
    file = MetricsFile(tmp_path / "metrics.jsonl", 0)
    for count, row in enumerate(rows(10, 20, 30), 1):
        file.append(row)
        assert read_rows(tmp_path / "metrics.jsonl") == rows(10, 20, 30)[:count]
    file.close()


def test_metrics_file_keeps_numbers_exactly(tmp_path):
    values = {"step": 2**60, "wall_s": 0.1 + 0.2, "loss/tiny": 5e-324, "loss/huge": -1.7976931348623157e308}
    write(tmp_path / "m", [values])
    assert read_rows(tmp_path / "m") == [values]


def test_ordered_sorts_groups_and_keeps_the_order_of_names():
    given = "sys/rss_mb loss/b time/x other loss/a eval/return_mean train/return_mean wall_s step"
    wanted = "step wall_s train/return_mean eval/return_mean loss/b loss/a time/x sys/rss_mb other"
    assert " ".join(ordered(dict.fromkeys(given.split(), 1))) == wanted


def test_non_finite_numbers_are_left_out_and_numpy_becomes_plain():
    bad = {"loss/a": math.nan, "loss/b": -math.inf}
    row = ordered({"step": np.int64(3), "wall_s": np.float32(0.5), **bad, "loss/c": np.float64(2)})
    assert json.dumps(row) == '{"step": 3, "wall_s": 0.5, "loss/c": 2.0}'


@pytest.mark.parametrize("torn", [b"", b'{"step": 25, "wal', b'{"step": 15, "wall_s": 1.5}', b"\0\0\0\n", b'"a"\n'])
def test_resume_cuts_later_rows_and_a_torn_line(tmp_path, torn):
    path = tmp_path / "m"
    write(path, rows(10, 20, 30))
    path.write_bytes(path.read_bytes() + torn)
    file = MetricsFile(path, 20)
    assert file.past == rows(10, 20)
    file.append(rows(21)[0])
    file.close()
    assert [json.loads(line) for line in path.read_text().splitlines()] == rows(10, 20, 21)
    assert [entry.name for entry in tmp_path.iterdir()] == ["m"]


@pytest.mark.parametrize("strange", ['{"step": 1}', '{"step": "2", "wall_s": 1.0}', '{"step": true, "wall_s": 1.0}'])
def test_metrics_file_drops_foreign_rows_at_a_resume(tmp_path, strange):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "wall_s": 0.5}\n' + strange + "\n")
    file = MetricsFile(path, 5)
    file.close()
    assert file.past == [{"step": 1, "wall_s": 0.5}] and read_rows(path) == file.past


def test_metrics_file_keeps_the_bytes_of_lines_at_a_resume(tmp_path):
    path = tmp_path / "m"
    path.write_bytes(b'{"step":1,  "wall_s": 1.0e-3}\n{"step": 9, "wall_s": 1}\n')
    MetricsFile(path, 5).close()
    assert path.read_bytes() == b'{"step":1,  "wall_s": 1.0e-3}\n'


def test_a_fresh_run_starts_an_empty_file(tmp_path):
    write(tmp_path / "m", rows(10))
    write(tmp_path / "m", rows(5))
    assert read_rows(tmp_path / "m") == rows(5)


def test_resume_without_a_file_starts_one(tmp_path):
    file = MetricsFile(tmp_path / "m", 10)
    file.close()
    assert file.past == [] and read_rows(tmp_path / "m") == []


def test_metrics_file_removes_a_partly_written_line(tmp_path, monkeypatch):
    path = tmp_path / "m"
    file = MetricsFile(path, 0)
    file.append(rows(10)[0])
    real = os.write
    monkeypatch.setattr("rlrun.telemetry.metrics.os.write", lambda fd, data: real(fd, data[:5]))
    with pytest.raises(RunError, match="cannot write metrics"):
        file.append(rows(20)[0])
    file.close()
    assert path.read_text() == '{"step": 10, "wall_s": 1.0}\n'
