"""`rlrun status`, `diff`, `board` and `report`, as a user types them."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from made_runs import make_run

import rlrun
from rlrun.cli import main
from rlrun.cli.board import command
from rlrun.rundir import RunDir

HOME = str(Path(rlrun.__file__).parents[1])


def say(capsys: Any, *words: str) -> tuple[int, list[str], list[str]]:
    code = main(words)
    out, err = capsys.readouterr()
    return code, out.splitlines(), err.splitlines()


def test_status_has_a_line_for_every_run(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert say(capsys, "status")[:2] == (0, ["no runs here yet (no folder runs/)"])
    make_run(tmp_path / "runs" / "a", {100: 5.0})
    make_run(tmp_path / "runs" / "b", {20: 1.0, 40: 2.0}, status=None, seed=1)
    make_run(tmp_path / "runs" / "c", {50: 7.0}, status="failed", snapshot=False)
    (tmp_path / "runs" / "empty").mkdir()
    holding = RunDir.open(tmp_path / "runs" / "b")
    try:
        code, out, err = say(capsys, "status")
    finally:
        holding.release()
    assert (code, err) == (0, [])
    rows = [line.split() for line in out]
    assert rows[0] == ["state", "progress", "step", "return", "left", "ago", "host", "algo", "env", "settings", "run"]
    assert rows[1] == ["done", "100%", "100", "5.000", "far", "ppo", "CartPole-v1", "seed=0", "runs/a"]
    # 60 of 100 steps are left at 10 steps a second
    assert rows[2][:5] == ["running", "40%", "40", "2.000", "0:06"] and rows[2][-2:] == ["seed=1", "runs/b"]
    assert rows[3] == ["dead", "(failed)", "50%", "50", "7.000", "far", "ppo", "CartPole-v1", "seed=0", "runs/c"]
    assert out[4:] == ["best on CartPole-v1: 7.000, ppo: runs/c", "skipped runs/empty: an empty folder"]
    assert say(capsys, "status", "nowhere")[2] == ["error: nowhere: no such folder"]


def test_status_compares_no_environments_with_different_arguments_or_wrappers(tmp_path: Path, capsys: Any) -> None:
    for name, score, word in (
        ("a", 1.0, "env.kwargs.size=3"),
        ("b", 2.0, "env.kwargs.size=3"),
        ("c", 3.0, "env.kwargs.size=5"),
        ("d", 4.0, "env.kwargs.size=5"),
        ("e", 9.0, "env.wrappers.hold.max_steps=2"),
        ("f", 5.0, "env.num_envs=2"),
        ("g", 6.0, "seed=7"),
    ):
        run = make_run(tmp_path / name, {100: score})
        with (run / "overrides.yaml").open("a") as file:
            file.write(f"- {word}\n")
    assert say(capsys, "status", str(tmp_path))[1][8:] == [
        f"best on CartPole-v1 env.kwargs.size=3: 2.000, ppo: {tmp_path}/b",
        f"best on CartPole-v1 env.kwargs.size=5: 4.000, ppo: {tmp_path}/d",
        f"best on CartPole-v1: 6.000, ppo: {tmp_path}/g",
    ]


def test_status_names_what_differs_and_the_best_run_of_each_environment(tmp_path: Path, capsys: Any) -> None:
    grid = tmp_path / "grid"
    for seed in range(2):
        make_run(grid / f"ppo{seed}", {50: 3.0 + seed, 100: 1.0}, seed=seed)
        make_run(grid / f"sac{seed}", {100: -5.0}, algo="sac", seed=seed)
    make_run(grid / "other", {100: -9.0}, env="Pendulum-v1")
    words = (grid / "sac1" / "overrides.yaml").read_text() + "- algo.gamma=0.9\n- logger=[]\n- name=x\n"
    (grid / "sac1" / "overrides.yaml").write_text(words)
    out = say(capsys, "status", str(grid))[1]
    rows = {line.split()[-1].rpartition("/")[2]: line.split() for line in out[1:6]}
    assert rows["ppo1"][-4:-1] == ["ppo", "CartPole-v1", "seed=1"]
    assert rows["sac1"][-5:-1] == ["sac", "CartPole-v1", "seed=1", "algo.gamma=0.9"]
    assert out[6:] == [f"best on CartPole-v1: 4.000, ppo: {grid}/ppo1"], "no line about the only run of Pendulum"
    make_run(grid / "equal", {100: 4.0}, algo="sac", seed=1)
    line = f"best on CartPole-v1: 4.000, sac: {grid}/equal, the first of 2 equal ones"
    assert say(capsys, "status", str(grid))[1][-1] == line
    same = say(capsys, "status", str(grid / "ppo0"))[1]
    assert len(same) == 2 and "seed" not in same[1], "a setting of all runs is not shown"


def test_diff_shows_differing_keys_and_the_first_differing_step(tmp_path: Path, capsys: Any) -> None:
    one = make_run(tmp_path / "a", {50: 1.0, 100: 2.0}, gamma=0.9)
    other = make_run(tmp_path / "b", {50: 1.0, 100: 3.0}, gamma=0.99, tau=1)
    code, out, _ = say(capsys, "diff", str(one), str(other))
    assert code == 0
    assert [line.split() for line in out[1:3]] == [["algo.gamma", "0.9", "0.99"], ["algo.tau", "-", "1"]]
    assert out[3:] == ["metrics: differ from step 99 on (train/return_mean)"]
    assert say(capsys, "diff", str(one), str(one))[1] == ["metrics: equal at all 4 shared steps, to 100"]


def test_report_writes_a_page_and_says_what_it_left_out(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for seed in range(2):
        make_run(tmp_path / "runs" / f"{seed}", {50: 1.0, 100: 2.0 + seed}, seed=seed)
        make_run(tmp_path / "old" / f"{seed}", {50: 1.0, 100: 1.0 + seed}, seed=seed)
    (tmp_path / "runs" / "empty").mkdir()
    code, out, err = say(capsys, "report", "runs", "baseline=old", "steps=50,1e2", "by=trainer.eval_every")
    assert (code, err) == (0, [])
    assert out[:-1] == ["skipped runs/empty: an empty folder"]
    assert out[-1].startswith("report/index.html: 4 runs, ")
    assert say(capsys, "report", ".", "baseline=old")[1][-1].startswith("report/index.html: 4 runs, "), "each once"
    say(capsys, "report", "runs", "baseline=old", "steps=50,1e2", "by=trainer.eval_every")
    text = (tmp_path / "report" / "index.html").read_text()
    assert "ppo, eval_every=10 (baseline)" in text
    assert "rlrun report runs baseline=old steps=50,1e2 by=trainer.eval_every" in text


def test_report_names_configs_that_differ_and_prints_no_control_characters(
    tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    for seed in range(2):
        make_run(tmp_path / "runs" / f"{seed}", {100: 1.0}, seed=seed, lr=0.1 * (seed + 1))
    (tmp_path / "runs" / "\x1b[31m\udcff").mkdir()
    code, out, err = say(capsys, "report", "runs")
    assert (code, err) == (0, [])
    assert out[:-1] == [
        "skipped runs/\\x1b[31m\\udcff: an empty folder",
        "configs differ, ppo on CartPole-v1: algo.lr 0.1, 0.2 (by=algo.lr separates them)",
    ]


def test_report_of_a_short_and_a_long_run_of_a_pair(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "runs" / "short", {2000: 20.0}, total=2000)
    make_run(tmp_path / "runs" / "long", {5000: 50.0, 40_000: 90.0}, total=40_000, seed=1)
    code, out, err = say(capsys, "report", "runs")
    assert (code, err) == (0, [])
    assert out[0].startswith("not counted runs/short: evaluated only at step 2,000, no step in common")
    assert (tmp_path / "report" / "index.html").is_file()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["report"], "error: no runs given; usage: rlrun report PATHS"),
        (["report", "nowhere"], "error: nowhere: no such folder"),
        (["report", "runs", "by=algo.gama"], "error: by=algo.gama: no run has this key"),
        (["report", "runs", "score=eval/retrun"], "error: score=eval/retrun: no run has this key"),
        (["report", "runs", "score="], "error: score=: must be a key of metrics.jsonl"),
        (["report", "runs/0", "baseline=runs"], "error: baseline=runs: contains all runs, so none is left"),
        (["report", "n" * 300], f"error: {'n' * 300}: "),
        (["status", "n" * 300], f"error: {'n' * 300}: File name too long"),
        (["status", "key=1"], "error: key: unknown key (this command has no settings)"),
        (["eval", "runs"], "error: runs: not a run (it has no config.yaml)"),
        (["resume", "runs/0", "sed=1"], "error: sed: unknown key (there are: total_steps, device, "),
        (["resume", "runs/0", "env=./my.py:Mine"], "error: env: unknown key; did you mean plugins=[./my.py]? (there"),
        (["report", "runs", "steps=soon"], "error: steps=soon: must be whole numbers, with commas"),
        (["report", "runs", "baseline=nowhere"], "error: nowhere: no such folder"),
        (["report", "runs", "outt=x"], "error: outt: unknown key; did you mean out?"),
        (["report", "runs", "out=runs/0/config.yaml"], "error: runs/0/config.yaml: cannot be written (File exists)"),
        (["diff", "runs/0"], "error: two runs are needed; usage: rlrun diff RUN1 RUN2"),
        (["diff", "runs/0", "nowhere"], "error: nowhere: no such folder"),
        (["board", "nowhere"], "error: nowhere: no such folder"),
        (["board", "runs", "port=99999"], "error: port=99999: must be a port, 0 to 65535"),
    ],
)
def test_bad_input_is_one_line(words: list[str], line: str, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "runs" / "0", {100: 1.0})
    code, out, err = say(capsys, *words)
    assert code in (1, 2) and out == [] and len(err) == 1
    assert err[0].startswith(line)


@pytest.mark.parametrize(
    ("words", "absent"),
    [
        (["status"], {"torch", "gymnasium", "hydra", "matplotlib", "numpy", "pydantic"}),
        (["diff", "runs/0", "runs/0"], {"torch", "gymnasium", "hydra", "matplotlib", "numpy", "pydantic"}),
        (["report", "runs"], {"torch", "gymnasium", "hydra"}),
    ],
)
def test_status_diff_and_report_import_no_torch(words: list[str], absent: set[str], tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "0", {100: 1.0})
    program = f"import sys; from rlrun.cli import main; main({words!r}); print(*sys.modules, file=sys.stderr)"
    env = os.environ | {"PYTHONPATH": HOME}
    run = [sys.executable, "-c", program]
    done = subprocess.run(run, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    assert absent.isdisjoint(done.stderr.split())


@pytest.mark.slow
def test_board_listens_on_this_machine_only(tmp_path: Path) -> None:
    from rlrun.telemetry.board import EventFile

    board = EventFile(make_run(tmp_path / "runs" / "0", {100: 1.0}) / "tb", [])
    board.write({"step": 100, "wall_s": 1.0, "eval/return_mean": 3.0})
    board.close()
    server = subprocess.Popen(command(tmp_path / "runs", 0), stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        line = next(line for line in server.stderr if "http://" in line)
        url = next(word for word in line.split() if word.startswith("http://"))
        assert url.startswith("http://127.0.0.1:")
        found: dict[str, Any] = {}
        for _ in range(100):
            with urllib.request.urlopen(url.rstrip("/") + "/data/plugin/scalars/tags") as answer:
                found = json.load(answer)
            if found:
                break
            time.sleep(0.2)
        assert [*found] == ["0/tb"] and "eval/return_mean" in found["0/tb"]
    finally:
        server.terminate()
        server.wait(20)
        server.stderr.close()
