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
from rlrun.run.trainer import Trainer
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
    assert rows.read() == []
    file.write_bytes(row(1) + row(2) + row(3))
    assert [found["step"] for found in rows.read()] == [1, 2, 3]
    (tmp_path / "new").write_bytes(row(1) + row(2))
    (tmp_path / "new").replace(file)
    assert rows.read() == []
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


@pytest.mark.parametrize(("status", "advice"), [("failed", "for the reason see {}/error.log; "), ("stopped", "")])
def test_tail_says_how_to_go_on_with_a_run_that_did_not_finish(
    status: str, advice: str, tmp_path: Path, capsys: Any
) -> None:
    path = make_run(tmp_path / "a", {20: 1.0}, status=status)
    assert say(capsys, "tail", str(path))[1][-1] == f"{advice.format(path)}to continue: rlrun resume {path}"


def test_tail_reads_the_config_again_when_the_run_is_resumed(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_run(tmp_path / "a", {100: 1.0}, status=None)
    run = RunDir.open(path)

    def resume(seconds: float) -> None:
        """Resumes the run with more steps while `tail` waits. The clock of its last row has gone back."""
        old = (path / "config.yaml").read_text()
        (path / "config.yaml").write_text(old.replace("total_steps: 100", "total_steps: 200"))
        (path / "new").write_bytes(row(99) + row(100) + row(150, wall_s=1.0))
        (path / "new").replace(path / "metrics.jsonl")
        run.release()

    monkeypatch.setattr(tail.time, "sleep", resume)
    code, out, _ = say(capsys, "tail", str(path))
    assert code == 0 and [line.split()[:2] for line in out[:3]] == [
        ["99/100", "99%"],
        ["100/100", "100%"],
        ["150/200", "75%"],
    ]


def test_tail_of_a_hostile_run_ends_in_one_line(tmp_path: Path, capsys: Any) -> None:
    path = make_run(tmp_path / "a", {20: 1.0}, total=0)
    (path / "summary.json").write_text('{"status": "done", "step": 20, "wall_s": -5}')
    rows = path / "metrics.jsonl"
    with rows.open("ab") as file:
        file.write(row(10**119) + row(-(10**119)))
    code, out, _ = say(capsys, "tail", str(path))
    assert code == 0 and out[2:] == ["done: 20 of 0 steps in -:--", str(path)]
    with rows.open("ab") as file:
        file.write(b"[" * (2**20 - 1) + b"\n" + row(30))  # a line as long as the limit
    assert say(capsys, "tail", str(path))[0] == 0
    with rows.open("ab") as file:
        file.write(b"[" * 2**20 + b"]\n" + row(40))
    assert say(capsys, "tail", str(path)) == (2, [], [f"error: {rows}: has a line of more than 1,048,576 bytes"])
    rows.unlink()
    rows.symlink_to("/dev/zero")
    assert say(capsys, "tail", str(path))[0] == 2


def test_a_finished_run_that_continues_has_no_summary_until_it_ends(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "algo=ppo env=CartPole trainer.total_steps=16 algo.loop.rollout_steps=16 env.num_envs=1 logger=[]"
    path = tmp_path / "a"
    assert main(["train", *words.split(), "trainer.eval_episodes=0", "env.selftest=off", f"run_dir={path}"]) == 0
    found = []
    real = Trainer.run
    monkeypatch.setattr(Trainer, "run", lambda *given: found.append(RunDir.summary_of(path)) or real(*given))
    assert main(["resume", str(path)]) == 0
    assert not found and RunDir.summary_of(path)["step"] == 16
    assert main(["resume", str(path), "total_steps=32"]) == 0
    assert found == [{}] and RunDir.summary_of(path)["step"] == 32


def test_tail_ends_with_130_after_ctrl_c_and_imports_no_torch(tmp_path: Path) -> None:
    path = make_run(tmp_path / "a", {20: 1.0}, status=None)
    run = RunDir.open(path)
    program = (
        "import atexit, sys\nfrom rlrun.cli import main\n"
        "atexit.register(lambda: print('torch' in sys.modules))\nsys.exit(main(['tail', 'a']))"
    )
    env = os.environ | {"PYTHONPATH": HOME}
    command = [sys.executable, "-u", "-c", program]

    def obey_ctrl_c() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a test run in the background may ignore it, and so its children

    with subprocess.Popen(
        command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True, preexec_fn=obey_ctrl_c
    ) as watching:
        try:
            assert watching.stdout is not None
            assert "19/100" in watching.stdout.readline() and "20/100" in watching.stdout.readline()
            watching.send_signal(signal.SIGINT)
            assert watching.communicate(timeout=20)[0] == "False\n" and watching.returncode == 130
        finally:
            watching.kill()
            run.release()
