"""Runs whose files are deleted, damaged or written by two processes, during training or afterwards."""

import json
import shutil
import unicodedata
from pathlib import Path

import pytest
import yaml
from rows.processes import Child

from rlrun.cli import main
from rlrun.run.counts import Counts
from rlrun.run.trainer import Trainer

SMALL = ["algo=ppo", "env=CartPole", "preset=none", "env.num_envs=1", "network.hidden=[8]", "trainer.eval_episodes=1",
         "algo.loop.rollout_steps=10", "trainer.log_every=10", "env.max_episode_steps=10"]  # fmt: skip
REPLAY = ["algo=dqn", "env=CartPole", "preset=none", "env.num_envs=1", "network.hidden=[8]", "trainer.eval_episodes=1",
          "algo.buffer.capacity=64", "algo.loop.warmup_steps=4", "algo.loop.batch_size=4", "trainer.log_every=10",
          "env.max_episode_steps=10"]  # fmt: skip

Out = pytest.CaptureFixture[str]


def digest(run: Path) -> str:
    (snapshot,) = (run / "snapshots").glob("step_*40")
    found: str = json.loads((snapshot / "manifest.json").read_text())["digest"]
    return found


def deleted_at(step: int, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deletes a folder when the run is at this step."""
    log_and_evaluate = Trainer.log_and_evaluate

    def one(self: Trainer, now: Counts) -> None:
        if self.loop.steps == step:
            self.checkpointer.wait()
            shutil.rmtree(path)
        log_and_evaluate(self, now)

    monkeypatch.setattr(Trainer, "log_and_evaluate", one)


@pytest.mark.parametrize("words", [SMALL, REPLAY], ids=["ppo", "dqn"])
def test_a_deleted_snapshots_folder_is_made_again(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                  capsys: Out) -> None:  # fmt: skip
    left, robbed = tmp_path / "left", tmp_path / "robbed"
    words = [*words, "trainer.total_steps=40", "trainer.snapshot_every=10", "logger=[console]"]
    assert main(["train", *words, f"run_dir={left}"]) == 0
    deleted_at(20, robbed / "snapshots", monkeypatch)
    assert main(["train", *words, f"run_dir={robbed}"]) == 0
    monkeypatch.undo()
    assert digest(robbed) == digest(left)
    assert "training continues" not in capsys.readouterr().out
    assert main(["resume", str(robbed), "total_steps=60"]) == 0
    assert ", exact" in capsys.readouterr().out


def test_a_deleted_tensorboard_folder_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    run = tmp_path / "run"
    deleted_at(20, run / "tb", monkeypatch)
    assert main(["train", *SMALL, "trainer.total_steps=40", f"run_dir={run}"]) == 0
    assert f"{run / 'tb'} was deleted; it is written again from metrics.jsonl" in capsys.readouterr().out
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tb"))
    events.Reload()
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [event.step for event in events.Scalars("train/episodes")] == [row["step"] for row in rows]


def test_concurrent_starts_with_resume_auto_make_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["train", *SMALL, "trainer.total_steps=400", "name=one", "resume=auto"]
    started = [Child(command, tmp_path / f"{i}.log") for i in range(3)]
    answers = [(one.finish(), one.said()) for one in started]
    assert len(list((tmp_path / "runs" / "one").iterdir())) == 1
    codes = sorted(code for code, _ in answers)
    assert codes[0] == 0 and set(codes) <= {0, 2}, answers
    assert all("is in use by" in text for code, text in answers if code == 2)
    (run,) = (tmp_path / "runs" / "one").iterdir()
    assert json.loads((run / "summary.json").read_text())["step"] == 400


def test_a_start_that_fails_leaves_no_folder_with_resume_auto_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", *SMALL, "algo.gamma=2", "resume=auto"]) == 2
    assert not (tmp_path / "runs").exists()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trained") / "run"
    assert main(["train", *SMALL, "trainer.total_steps=40", "logger=[console]", f"run_dir={path}"]) == 0
    return path


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of a finished run."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


@pytest.mark.parametrize("text", ['{"versions": 3}', '{"resumed": 5}', '{"resumed": [5]}', "[1]", "{", ""])
def test_a_damaged_meta_json_is_bad_input(text: str, run: Path, capsys: Out) -> None:
    (run / "meta.json").write_text(text)
    assert main(["resume", str(run), "total_steps=80"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {run / 'meta.json'}: ")


@pytest.mark.parametrize("text", ["5", "{a: 1}", "[5]", None])
def test_damaged_overrides_are_bad_input(text: str | None, run: Path, capsys: Out) -> None:
    (run / "overrides.yaml").unlink()
    if text is not None:
        (run / "overrides.yaml").write_text(text)
    assert main(["resume", str(run), "total_steps=80"]) == 2
    assert "overrides.yaml" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["resume", "eval", "report", "diff", "status"])
@pytest.mark.parametrize("change", ["1: 2", "env: []", "algo: 5", "trainer: null", "algo: {name: [1]}", "network: {}"])
def test_a_config_of_other_types_is_bad_input(change: str, command: str, run: Path, tmp_path: Path,
                                              capsys: Out) -> None:  # fmt: skip
    values = yaml.safe_load((run / "config.yaml").read_text())
    (run / "config.yaml").write_text(yaml.safe_dump(values | yaml.safe_load(change)))
    more = {"report": [f"out={tmp_path / 'out'}"], "diff": [str(run)]}.get(command, [])
    code, captured = main([command, str(run), *more]), capsys.readouterr()
    assert code in ((0, 2) if command in ("report", "diff", "status") else (2,)), captured
    assert "Traceback" not in captured.err and "(trace in" not in captured.err


def test_a_full_disk_without_room_for_the_error_log_is_one_line(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    def broken(self: Trainer, now: Counts) -> None:
        raise ValueError("something else")

    monkeypatch.setattr(Trainer, "log_and_evaluate", broken)
    monkeypatch.setattr("rlrun.files.open_to_append", full)
    monkeypatch.setattr("rlrun.telemetry.metrics.files.open_to_append", full)
    assert main(["resume", str(run), "total_steps=80"]) == 1
    assert capsys.readouterr().err == f"error: {run}: no space left on the disk\n"


def controls(text: str) -> list[str]:
    return [letter for letter in text if letter != "\n" and unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl")]


def test_no_command_sends_control_codes_of_a_stored_run_to_the_terminal(run: Path, tmp_path: Path, capsys: Out) -> None:
    hostile = tmp_path / "ansi\x1b]0;PWN\x07\x1b[31mred\nerror: fake\u202e"
    run.rename(hostile)
    values = yaml.safe_load((hostile / "config.yaml").read_text())
    for section, key in ((values, "name"), (values["env"], "id"), (values["algo"], "name")):
        section[key] += "\x1b[2J\nerror: fake"
    values["plugins"] = ["\x1b[2J"]
    broken = tmp_path / "broken"
    shutil.copytree(hostile, broken)
    (broken / "config.yaml").write_text(yaml.safe_dump(values))
    other = ["total_steps=80"]
    for place in (hostile, broken):
        for words in (["status"], ["diff", str(hostile)], ["report", f"out={tmp_path / 'out'}"], ["eval", "episodes=1"],
                      ["resume", *other]):  # fmt: skip
            main([words[0], str(place), *words[1:]])
            captured = capsys.readouterr()
            assert controls(captured.out + captured.err) == [], words
            assert not any(line.startswith("error: fake") for line in (captured.out + captured.err).splitlines()), words


def test_a_file_with_a_second_name_is_not_written(run: Path, tmp_path: Path, capsys: Out) -> None:
    mine = tmp_path / "mine"
    mine.write_text("precious")
    (run / ".lock").unlink()
    (run / ".lock").hardlink_to(mine)
    assert main(["resume", str(run)]) == 2
    assert "has a second name (a hard link)" in capsys.readouterr().err
    assert mine.read_text() == "precious"
