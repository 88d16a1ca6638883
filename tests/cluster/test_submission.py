"""Words about where runs are started, and the jobs of `train -m` on this machine."""

import sys
from pathlib import Path

import pytest

import rlrun
from rlrun.cli import main
from rlrun.cli.grid import GridJob
from rlrun.cli.grid_display import GridLines
from rlrun.cli.submit import _run
from rlrun.cli.train import _submission
from rlrun.cluster import Command, Ended
from rlrun.cluster.local import Forks, LocalConfig
from rlrun.cluster.slurm import SlurmConfig
from rlrun.cluster.submission import CONFIGS, chosen
from rlrun.cluster.task import last_error
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
    *lines, heading, first, second, third, last = capsys.readouterr().out.splitlines()
    assert {line.partition("   ")[0] for line in lines} >= {f"job {seed + 1} of 3: seed={seed}" for seed in range(3)}
    assert heading.split() == ["job", "status", "steps", "final", "best", "run"]
    rows = [line.split()[:3] for line in (first, second, third)]
    assert rows == [[f"seed={seed}", "done", "200"] for seed in range(3)]
    assert last.startswith("3 jobs, 0 failed")
    alone = rlrun.train(*RUN, "seed=1", run_dir="alone")
    (run,) = Path("runs/grid").glob("*-s1-????")
    assert Store(run).load().digest == Store(alone.path).load().digest


@pytest.mark.skipif(sys.platform != "linux", reason="forks are used on Linux")
@pytest.mark.usefixtures("forks")
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


class Ends:
    """A cluster whose commands fail as soon as they are started."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.running: list[str] = []
        self.most = 0  # commands at a time

    def submit(self, commands: list[Command]) -> str:
        names = [command.name for command in commands]
        self.started += names
        self.running += names
        self.most = max(self.most, len(self.running))
        return ""

    def ended(self) -> list[Ended]:
        found = [Ended(name, 1) for name in self.running]
        self.running = []
        return found


def grid_jobs(folder: Path, count: int) -> list[GridJob]:
    numbers = range(1, count + 1)
    commands = [Command(f"runs/{i}", [], folder / f"{i}.log") for i in numbers]
    return [GridJob(f"job {i} of {count}", f"seed={i}", command) for i, command in zip(numbers, commands, strict=True)]


@pytest.mark.parametrize("workers", [1, 2, 9])
def test_grid_trains_as_many_runs_at_a_time_as_it_has_workers(tmp_path: Path, workers: int) -> None:
    cluster = Ends()
    _run(grid_jobs(tmp_path, 3), cluster, workers, GridLines())  # type: ignore[arg-type]
    assert cluster.started == ["runs/1", "runs/2", "runs/3"] and cluster.most == min(3, workers)


def test_grid_without_a_submission_trains_one_run_after_the_other() -> None:
    for words in ([], ["submit=none"]):
        submission, others = _submission([*words, "seed=0,1"], multirun=True)
        assert submission is not None and submission.cfg == LocalConfig(workers=1) and others == ["seed=0,1"]
    assert _submission(["submit=local"], multirun=False) == (None, []), "a single run is trained by its command"


def test_grid_waits_for_a_run_that_another_process_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    holders = iter(["pid 7", "pid 7", None, None])
    monkeypatch.setattr("rlrun.cli.submit.lock.holder", lambda path: next(holders))
    cluster = Ends()
    _run(grid_jobs(tmp_path, 2), cluster, 1, GridLines())  # type: ignore[arg-type]
    assert cluster.started == ["runs/1", "runs/2"]
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        "job 1 of 2: waits for runs/1, which is in use by pid 7",
        f"job 1 of 2: seed=1   output: {tmp_path}/1.log",
    ]


def test_last_error_of_a_log_says_if_there_is_none(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert last_error(log) == "it ended without a message"
    log.write_text("step 20  return 0.5\n")
    why = "it ended without an error message; the last line of its log is: step 20  return 0.5"
    assert last_error(log) == why
    log.write_text("error: one\nerror: two\nrlrun resume x\n")
    assert last_error(log) == "two"
