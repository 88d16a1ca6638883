"""The callback `episodes` writes one line for each training episode."""

import csv
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rlrun
from rlrun.callbacks.episodes import EpisodesFile
from rlrun.cli import main
from rlrun.errors import ConfigError
from rlrun.testing import check_callback
from rlrun.types import Episode, Spec

WORDS = ["algo=dqn", "env=CartPole", "preset=none", "trainer.eval_every=0", "trainer.eval_episodes=0", "logger=[]",
         "network.hidden=[8]", "trainer.log_every=50", "callbacks=[episodes]"]  # fmt: skip


def lines(run: Path) -> list[dict[str, str]]:
    with (run / "episodes.csv").open(newline="") as file:
        return [*csv.DictReader(file)]


def episodes_file(folder: Path, *log_info: str) -> Any:
    """Returns the callback in a run with one episode in its snapshot."""
    history: Any = EpisodesFile()
    spec = Spec(None, None, 1, log_info=log_info)
    history.run = SimpleNamespace(path=folder, loop=SimpleNamespace(steps=20, env=SimpleNamespace(spec=spec)))
    history.set_extra_state(1)
    return history


def test_episode_history_has_every_episode_once_after_a_resume(tmp_path: Path) -> None:
    whole = rlrun.train(*WORDS, "trainer.total_steps=400", run_dir=str(tmp_path / "whole"))
    half = rlrun.train(*WORDS, "trainer.total_steps=200", run_dir=str(tmp_path / "half"))
    with (half.path / "episodes.csv").open("a") as file:
        file.write("99,300,1.0,9,9.0\n")  # written after the snapshot by a process that was then killed
    half.resume(total_steps=400)
    assert len(lines(whole.path)) == whole.rows[-1]["train/episodes"]
    for one, other in zip(lines(whole.path), lines(half.path), strict=True):
        assert {**one, "wall_s": ""} == {**other, "wall_s": ""}
    assert {line["terminated"] for line in lines(whole.path)} == {"True"}
    assert {line["success_fraction"] for line in lines(whole.path)} == {""}, "CartPole reports no success"
    times = [float(line["wall_s"]) for line in lines(half.path)]
    assert times == sorted(times)
    assert sum(int(line["length"]) for line in lines(whole.path)) <= 400


def test_branch_has_an_episode_history_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    whole = rlrun.train(*WORDS, "trainer.total_steps=400", run_dir="whole")
    rlrun.train(*WORDS, "trainer.total_steps=200", run_dir="half")
    assert main(["resume", "half", "into=branch", "total_steps=300"]) == 0
    assert main(["resume", "branch", "total_steps=400"]) == 0
    own = lines(tmp_path / "branch")
    assert [int(line["episode"]) for line in own] == [*range(1, len(own) + 1)]
    last = [line["step"] for line in lines(whole.path) if int(line["step"]) > 200]
    assert [line["step"] for line in own] == last != []


def test_episode_history_of_an_earlier_version_gets_the_new_columns(tmp_path: Path) -> None:
    (tmp_path / "episodes.csv").write_text("episode,step,wall_s,length,return\n1,9,0.5,9,[1.0, 2.0]\n")
    history = episodes_file(tmp_path, "energy", "a,b")
    history.on_start()
    history.episode = Episode(3.0, 11, 0, True, 1.0, 0.25, {"a,b": 2.5})
    history.on_episode(3.0, 11)
    history.write()
    first, second = lines(tmp_path)
    assert [first["terminated"], first["success_fraction"], first["length"]] == ["", "", "9"]
    assert [second["terminated"], second["success_fraction"], second["return"]] == ["True", "0.25", "3.0"]
    assert [[line["info_energy"], line["info_a,b"]] for line in (first, second)] == [["", ""], ["", "2.5"]]


@pytest.mark.parametrize("line", ["1,9", "1,9,soon,9,True,,3.0"])
def test_damaged_episode_history_is_refused_in_one_line(line: str, tmp_path: Path) -> None:
    (tmp_path / "episodes.csv").write_text(f"episode,step,wall_s,length,terminated,success_fraction,return\n{line}\n")
    history = episodes_file(tmp_path)
    with pytest.raises(ConfigError, match=r"episodes.csv: episode 1 cannot be read"):
        history.on_start()


def test_run_with_a_damaged_episode_history_is_not_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = rlrun.train(*WORDS, "trainer.total_steps=200", run_dir=str(tmp_path / "run"))
    text = (run.path / "episodes.csv").read_text().splitlines()
    (run.path / "episodes.csv").write_text("\n".join([line.partition(",")[0] for line in text]))
    capsys.readouterr()
    assert main(["resume", str(run.path), "total_steps=400"]) == 2
    line, *_ = capsys.readouterr().err.splitlines()
    assert "episodes.csv: episode" in line and "cannot be read; without this file, a new one is begun" in line


def test_episode_history_has_a_column_for_each_component_of_a_return(tmp_path: Path) -> None:
    words = [
        "algo=sac",
        "env=PointRun",
        "preset=none",
        "algo.reward_weights={name: fixed, weights: [1, 1]}",
        *WORDS[3:],
    ]
    run = rlrun.train(*words, "trainer.total_steps=300", "algo.loop.warmup_steps=400", run_dir=str(tmp_path / "run"))
    first = lines(run.path)[0]
    assert [*first][-2:] == ["return_0", "return_1"]
    assert None not in first and float(first["return_1"]) < 0


def test_episode_history_changes_nothing() -> None:
    check_callback("callbacks=[episodes]")
