"""`rlrun tail`, as a user types it: finished runs, runs in progress, resumes, kills."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from made_runs import make_run

import rlrun
from rlrun.cli import main, tail
from rlrun.rundir import RunDir

HOME = str(Path(rlrun.__file__).parents[1])


def say(capsys: Any, *words: str) -> tuple[int, list[str], list[str]]:
    code = main(words)
    out, err = capsys.readouterr()
    return code, out.splitlines(), err.splitlines()


def row(step: int, **values: float) -> bytes:
    return json.dumps({"step": step, "wall_s": step / 10, "train/return_mean": 1.0, **values}).encode() + b"\n"


def test_tail_prints_the_lines_of_a_finished_run_and_ends(tmp_path: Path, capsys: Any) -> None:
    path = make_run(tmp_path / "a", {50: 4.0, 100: 8.0})
    code, out, err = say(capsys, "tail", str(path))
    assert (code, err) == (0, [])
    # 10 steps in a second of the run, however fast its rows are read
    assert out[0].split() == ["49/100", "49%", "train", "2.000", "10", "steps/s", "eta", "0:05"]
    assert out[1].split()[-4:] == ["eval", "4.000", "±", "0.000"]
    assert out[4:] == ["done: 100 of 100 steps in 0:10", str(path)]


def test_tail_follows_the_newest_run_until_its_lock_is_released(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tail, "LOOK_EVERY_S", 0.01)
    assert say(capsys, "tail")[::2] == (2, ["error: no run below runs/; usage: rlrun tail [RUN]"])
    older = make_run(tmp_path / "runs" / "ppo" / "b", {100: 1.0})
    for name in ("config.yaml", "metrics.jsonl"):
        os.utime(older / name, (1e9, 1e9))
    path = make_run(tmp_path / "runs" / "ppo" / "a", {20: 1.0}, status=None)
    run = RunDir.open(path)

    def train() -> None:
        time.sleep(0.1)
        with (path / "metrics.jsonl").open("ab") as file:
            file.write(row(40))
            file.write(row(60)[:9])
            file.flush()
            time.sleep(0.1)
            file.write(row(60)[9:])
        run.write_json("summary.json", {"status": "stopped", "step": 60, "wall_s": 6.0})
        run.release()

    training = threading.Thread(target=train)
    training.start()
    code, out, _ = say(capsys, "tail")
    training.join()
    assert (code, out[0]) == (0, "runs/ppo/a")
    assert [line.split("/")[0].strip() for line in out[1:5]] == ["19", "20", "40", "60"], "no part of a line is printed"
    assert out[5] == "stopped: 60 of 100 steps in 0:06"


def test_tail_prints_no_row_twice_when_a_resume_replaces_the_file(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    rows = tail.NewRows(file)
    assert list(rows.read()) == []
    file.write_bytes(row(1) + row(2) + row(3))
    assert [found["step"] for found in rows.read()] == [1, 2, 3]
    (tmp_path / "new").write_bytes(row(1) + row(2))
    (tmp_path / "new").replace(file)
    assert list(rows.read()) == []
    with file.open("ab") as end:
        end.write(row(3) + row(4))
    assert [found["step"] for found in rows.read()] == [4]


def test_tail_says_how_to_go_on_with_a_killed_run(tmp_path: Path, capsys: Any) -> None:
    path = make_run(tmp_path / "a", {20: 1.0}, status=None)
    (path / "summary.json").write_text('{"status": "stopped", "step": 10}')  # of an earlier stop
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 30, "train/return_mean": "\\u001b[31m", "wall_s": 1e999}\n')
    code, out, _ = say(capsys, "tail", str(path))
    assert code == 0 and len(out) == 4 and "\x1b" not in "".join(out)
    assert out[-1] == f"killed at step 30 or later; to continue: rlrun resume {path}"
    assert say(capsys, "tail", str(tmp_path))[::2] == (2, [f"error: {tmp_path}: not a run (it has no config.yaml)"])


def test_tail_ends_with_130_after_ctrl_c_and_imports_no_torch(tmp_path: Path) -> None:
    path = make_run(tmp_path / "a", {20: 1.0}, status=None)
    run = RunDir.open(path)
    program = (
        "import atexit, sys\nfrom rlrun.cli import main\n"
        "atexit.register(lambda: print('torch' in sys.modules))\nsys.exit(main(['tail', 'a']))"
    )
    env = os.environ | {"PYTHONPATH": HOME}
    command = [sys.executable, "-u", "-c", program]
    watching = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True)
    try:
        assert watching.stdout is not None
        assert "19/100" in watching.stdout.readline() and "20/100" in watching.stdout.readline()
        watching.send_signal(signal.SIGINT)
        assert watching.communicate(timeout=20)[0] == "False\n" and watching.returncode == 130
    finally:
        watching.kill()
        watching.wait()
        run.release()
