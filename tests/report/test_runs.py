"""Reading runs: whole runs are read, all others are listed, and no run stops the reading."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from made_runs import make_run

from rlrun.formats.history import FORMAT
from rlrun.lock import holder
from rlrun.report.runs import read
from rlrun.rundir import RunDir


def test_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    run = read([make_run(tmp_path / "a", {50: 1.0, 100: 2.0}, typed="ppo_rnd", seed=3)])[0][0]
    assert (run.algo, run.env, run.seed, run.step, run.total_steps) == ("ppo_rnd", "CartPole-v1", 3, 100, 100)
    assert (run.state, run.host, run.faults) == ("done", "far", [])
    assert [row["step"] for row in run.rows] == [49, 50, 99, 100]
    assert (run.last("eval/return_mean"), run.most("train/return_mean")) == (2.0, 1.0)
    run.meta["resumed"] = [{"host": "near"}]
    assert run.host == "near"
    run.meta["resumed"].append({})
    assert run.host == "far", "if a resume recorded none"


def test_run_states(tmp_path: Path) -> None:
    make_run(tmp_path / "done", {100: 1})
    make_run(tmp_path / "killed", {50: 1}, status=None)
    make_run(tmp_path / "stopped", {50: 1}, status="stopped")
    make_run(tmp_path / "failed early", {50: 1}, status="failed", snapshot=False)
    make_run(tmp_path / "killed early", {50: 1}, status=None, snapshot=False)
    (tmp_path / "killed early/snapshots/best").mkdir(parents=True)
    make_run(tmp_path / "pulled", {50: 1}, status="stopped")
    (tmp_path / "pulled/rlrun.json").write_text("{}")
    make_run(tmp_path / "resumed", {50: 1})
    holding = RunDir.open(tmp_path / "resumed")
    runs, _ = read([tmp_path])
    try:
        assert {run.path.name: run.state for run in runs} == {
            "done": "done", "killed": "resumable", "stopped": "resumable", "failed early": "dead", "resumed": "running",
            "killed early": "resumable", "pulled": "shared",
        }  # fmt: skip
        assert holder(tmp_path / "resumed") is not None
    finally:
        holding.release()
    assert holder(tmp_path / "resumed") is None
    RunDir.open(tmp_path / "resumed").release()


def no_config(run: Path) -> None:
    (run / "config.yaml").unlink()


def other_config(run: Path) -> None:
    (run / "config.yaml").write_text(f"format: {FORMAT}\nmodel: {{name: gpt}}\n")


def torn_config(run: Path) -> None:
    (run / "config.yaml").write_bytes((run / "config.yaml").read_bytes()[:90] + b"\xff\xfe{")


def alias_bomb(run: Path) -> None:
    (run / "config.yaml").write_text("a: &a [x, x]\nb: &b [*a, *a]\n")


def folder_as_config(run: Path) -> None:
    (run / "config.yaml").unlink()
    (run / "config.yaml").mkdir()


def text_as_steps(run: Path) -> None:
    (run / "config.yaml").write_text((run / "config.yaml").read_text().replace("total_steps: 100", "total_steps: many"))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (no_config, "not a run (it has no config.yaml)"),
        (other_config, "not a run of rlrun (config.yaml has no algo.name)"),
        (torn_config, "not a config"),
        (alias_bomb, "aliases are not allowed"),
        (folder_as_config, "not a run"),
        (text_as_steps, "not a run of rlrun (config.yaml has no trainer.total_steps)"),
    ],
)
def test_read_names_folders_without_a_run(damage: Callable[[Path], None], reason: str, tmp_path: Path) -> None:
    make_run(tmp_path / "good", {100: 1})
    damage(make_run(tmp_path / "bad", {100: 1}))
    runs, (skipped,) = read([tmp_path])
    assert [run.path.name for run in runs] == ["good"]
    assert skipped.path == tmp_path / "bad"
    assert reason in skipped.reason and "\n" not in skipped.reason
    assert "bad" not in skipped.reason, "its path stands before the reason"


def test_empty_foreign_and_absent_folders_are_named(tmp_path: Path) -> None:
    make_run(tmp_path / "group" / "good", {100: 1})
    (tmp_path / "group" / "empty").mkdir()
    (tmp_path / "photos" / "summer").mkdir(parents=True)
    (tmp_path / "photos" / "summer" / "sea.txt").touch()
    (tmp_path / "notes.txt").touch()
    (tmp_path / "sweeps" / "20260101-000000").mkdir(parents=True)
    runs, skipped = read([tmp_path, tmp_path / "nowhere", tmp_path / "group" / "good"])
    assert [run.path.name for run in runs] == ["good"], "once, though it was named twice"
    assert {(folder.path.name, folder.reason) for folder in skipped} == {
        ("empty", "an empty folder"), ("photos", "holds no run"), ("nowhere", "no such folder"),
    }  # fmt: skip


def test_links_are_followed_where_they_are_named_and_nowhere_else(tmp_path: Path) -> None:
    run = make_run(tmp_path / "elsewhere" / "run", {100: 1})
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "one").symlink_to(run)
    runs, skipped = read([tmp_path / "links" / "one"])
    assert ([found.path.name for found in runs], skipped) == (["one"], [])
    runs, (folder,) = read([tmp_path / "links"])
    assert runs == [] and folder.reason == "holds no run; links in it are not followed, name them instead"


def test_deep_folder_does_not_hide_the_runs_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(tmp_path / "runs" / "ok", {100: 1})
    deep = tmp_path / "runs" / "deep"
    deep.mkdir()
    monkeypatch.chdir(deep)
    for _ in range(400):  # its path is longer than the system takes
        os.mkdir("d" * 20)
        os.chdir("d" * 20)
    os.chdir(tmp_path)
    runs, (folder,) = read([Path("runs")])
    assert [run.path for run in runs] == [Path("runs/ok")]
    assert folder.reason == "holds no run"


def test_a_number_of_thousands_of_digits_is_refused(tmp_path: Path) -> None:
    """Python reads such hexadecimal numbers, and cannot print them."""
    path = make_run(tmp_path / "a", {100: 1}, sizes=[64]) / "config.yaml"
    path.write_text(path.read_text().replace("64", f"0x{'f' * 5000}"))
    _, (folder,) = read([tmp_path / "a"])
    assert folder.reason == "config.yaml: holds a whole number above 1e+100"


def test_read_skips_half_written_files_alone(tmp_path: Path) -> None:
    path = make_run(tmp_path / "a", {50: 1.0, 100: 2.0})
    with (path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 120, "wall_s": NaN, "eval/return_mean": 9.0, "note": "text"}\n')
        file.write(b"\xff\xfe\x00 garbage\n" + b"[" * 100_000 + b'\n{"step": "x"}\n{"step": 130, "eval/ret')
    (path / "summary.json").write_text('{"status": ')
    (path / "meta.json").write_text("[1]")
    (path / "overrides.yaml").write_text("{{{")
    (run,), _ = read([path])
    assert run.rows[-1] == {"step": 120, "eval/return_mean": 9.0}
    assert (run.algo, run.state) == ("ppo", "resumable")
    assert run.faults == [
        "meta.json: cannot be read", "summary.json: cannot be read", "metrics.jsonl: 3 lines cannot be read",
    ]  # fmt: skip


def test_read_does_not_block_on_pipes(tmp_path: Path) -> None:
    path = make_run(tmp_path / "a", {100: 1.0})
    for name in ("metrics.jsonl", "meta.json", "overrides.yaml"):
        (path / name).unlink()
        os.mkfifo(path / name)
    assert "is a pipe" in read([path])[1][0].reason
    (path / "config.yaml").unlink()
    os.mkfifo(path / "config.yaml")
    assert "no config.yaml" in read([path])[1][0].reason


def test_a_run_that_has_just_begun_is_a_run(tmp_path: Path) -> None:
    path = make_run(tmp_path / "a", {}, status=None, snapshot=False)
    (path / "metrics.jsonl").unlink()
    (run,), skipped = read([path])
    assert (run.rows, run.step, run.state, skipped) == ([], 0, "dead", [])
    assert run.faults == ["metrics.jsonl: No such file or directory"]
    assert json.dumps(run.meta)
