"""Words about where runs are started, and `train -m submit=local`."""

import sys
from pathlib import Path

import pytest

import rlrun
from rlrun.cli import main
from rlrun.cli.submit import _codes
from rlrun.cluster import Command, Ended
from rlrun.cluster.local import Forks, LocalConfig
from rlrun.cluster.slurm import SlurmConfig
from rlrun.cluster.submission import CONFIGS, chosen
from rlrun.config import sources
from rlrun.errors import ConfigError
from rlrun.snapshot.store import Store

RUN = ["algo=q_learning", "env=FrozenLake", "trainer.total_steps=200", "logger=[]"]


def test_submission_is_removed_from_the_words_of_the_run() -> None:
    submission, words = chosen(["seed=1", "submit=slurm", "submit.time=90m", "submit.options.qos=high"], {})
    assert words == ["seed=1"] and submission is not None and isinstance(submission.cfg, SlurmConfig)
    assert submission.cfg.minutes == 90 and submission.cfg.options == {"qos": "high"} and submission.cfg.cpus == 1
    assert chosen(["seed=1", "submit=none"], {}) == (None, ["seed=1"])


def test_every_file_has_a_config() -> None:
    assert {*CONFIGS, "none"} == {*sources.options("submit", [sources.CONF])}
    assert isinstance(chosen(["submit=local"], {})[0].cfg, LocalConfig)


@pytest.mark.parametrize(
    ("command", "words", "lines"),
    [
        (
            "train", ["submit=slrum"],
            ["submit=slrum: unknown name; did you mean slurm? (there are: local, none, ray, slurm)"],
        ),
        ("train", ["submit.time=3h"], ["submit.time: choose first where runs are started: submit=local|ray|slurm"]),
        (
            "train", ["submit=slurm", "submit.partion=gpu", "submit.cpus=x"],
            ["submit.partion: unknown key; did you mean submit.partition?",
             "submit.cpus=x: must be a whole number, like 1"],
        ),
        (
            "train", ["submit=slurm", "submit.time=4x", "submit.memory=big"],
            ["submit.time='4x': must be minutes, hours or days, like 30m, 4h or 2d",
             "submit.memory='big': must be a size, like 500M, 16G or 1T"],
        ),
        (
            "train", ["submit=slurm", "submit.driver=here"],
            ["submit.driver: is a setting of `rlrun sweep`, whose driver starts runs"],
        ),
        (
            "sweep", ["submit=local", "submit.workers=3"],
            ["submit.workers: a sweep has a setting of its own, workers=..."],
        ),
        (
            "train", ["-m", "submit=local", "hydra/launcher=basic"],
            ["hydra/launcher=basic: submit=local starts the jobs already; type one of the two"],
        ),
        ("train", ["submit="], ["submit=: needs a name: submit=local|ray|slurm"]),
    ],
)  # fmt: skip
def test_faulty_submission_has_a_line_for_each_fault(
    command: str, words: list[str], lines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main([command, *RUN, *words]) == 2
    assert capsys.readouterr().err.splitlines() == [f"error: {line}" for line in lines]
    assert not list(tmp_path.iterdir())


def test_run_from_python_is_not_submitted() -> None:
    with pytest.raises(ConfigError, match="where a run is started is a setting of `rlrun train` and `rlrun sweep`"):
        rlrun.train(*RUN, "submit=slurm")


def test_show_prints_the_settings_of_a_submission(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "submit=slurm", "submit.time=4h"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["submit.time", "4h", "command", "line"] in [line[:4] for line in lines]
    assert ["submit.cpus", "1", "conf/submit/slurm.yaml", "CPUs"] in [line[:4] for line in lines]


def test_grid_trains_several_runs_at_a_time_and_prints_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "-m", *RUN, "seed=0,1,2", "name=grid", "submit=local", "submit.workers=2"]) == 0
    output = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in output[:3]] == ["job 1 of 3", "job 2 of 3", "job 3 of 3"]
    assert output[3].split() == ["job", "status", "steps", "final", "best", "run"]
    assert [line.split()[:3] for line in output[4:7]] == [[f"seed={seed}", "done", "200"] for seed in range(3)]
    assert output[7].startswith("3 jobs, 0 failed")
    alone = rlrun.train(*RUN, "seed=1", run_dir="alone")
    (run,) = Path("runs/grid").glob("*-s1-????")
    assert Store(run).load().digest == Store(alone.path).load().digest


@pytest.mark.skipif(sys.platform != "linux", reason="forks are used on Linux")
def test_interrupted_grid_interrupts_its_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    ended = Forks.ended

    def interrupted(cluster: Forks) -> list[Ended]:
        rows = [path for path in Path("runs/grid").glob("*/metrics.jsonl") if path.stat().st_size]
        if len(rows) == 2:
            raise KeyboardInterrupt
        return ended(cluster)

    monkeypatch.setattr(Forks, "ended", interrupted)
    words = ["trainer.total_steps=1e9", "trainer.log_every=10", "seed=0,1,2", "name=grid", "submit=local"]
    assert main(["train", "-m", *RUN[:2], "logger=[]", *words]) == 130
    assert "interrupted; the same command with resume=auto goes on" in capsys.readouterr().err
    stopped = [path.read_text() for path in Path("runs/grid").glob("*/summary.json")]
    assert len(stopped) == 2 and all('"status": "stopped"' in text for text in stopped)


def test_run_whose_environment_ends_the_process_counts_as_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Cluster:
        submit = staticmethod(len)

        def ended(self) -> list[Ended]:
            return [Ended(str(tmp_path), 0)]

    commands = [Command(str(tmp_path), [], tmp_path / "log")]
    assert _codes(commands, Cluster(), 1) == [1]  # type: ignore[arg-type]
    assert "log: the process ended before the run" in capsys.readouterr().err
    (tmp_path / "summary.json").write_text("{}")
    assert _codes(commands, Cluster(), 1) == [0]  # type: ignore[arg-type]
