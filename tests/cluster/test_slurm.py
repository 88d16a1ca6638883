"""Jobs of Slurm, by the scheduler of `fake_slurm.py`, which starts real processes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fake_slurm import FakeSlurm
from faults.rows.processes import Child

from rlrun.cli import main
from rlrun.cluster import Command, Ended, scheduler
from rlrun.cluster.slurm import Slurm, SlurmConfig
from rlrun.config import sources
from rlrun.config.compose import literal
from rlrun.errors import RunError, printable
from rlrun.settings import parse
from rlrun.sweep import journal
from rlrun.sweep.driver import Driver

RUN = ["algo=q_learning", "env=FrozenLake", "env.selftest=off"]  # a busy machine announces a self-test
SWEEP = ["sweep", *RUN, "trainer.total_steps=400", "trainer.eval_every=400", "trainer.eval_episodes=2",
         "algo.learning_rate=log(1e-2,1)", "seeds=1", "rungs=[1]", "winners=0", "submit=slurm"]  # fmt: skip
HOME = Path("runs/sweeps/q_learning-FrozenLake")
pytestmark = pytest.mark.usefixtures("forks")  # for the checks of spaces


class KilledError(Exception):
    """The driver is killed at this instant."""


def cluster(**changes: object) -> Slurm:
    values = sources.content(sources.CONF / "submit" / "slurm.yaml")
    return Slurm(parse(SlurmConfig, values | changes, "submit"), main)


def all_ended(cluster: Slurm, count: int) -> list[Ended]:
    found: list[Ended] = []
    deadline = time.monotonic() + 120
    while len(found) < count and time.monotonic() < deadline:
        found += cluster.ended()
        time.sleep(0.01)
    return sorted(found)


def command(name: str, word: str = "--version") -> Command:
    return Command(name, [word], Path("logs", f"{name}.log"))


def test_jobs_end_with_their_exit_code_and_a_log(slurm: FakeSlurm) -> None:
    started = cluster()
    started.submit([command("good"), command("bad", "trian")])
    assert all_ended(started, 2) == [Ended("bad", 2), Ended("good", 0)]
    assert "rlrun 0.1.0\n" in Path("logs/good.log").read_text()
    assert "unknown command 'trian'" in Path("logs/bad.log").read_text()
    assert slurm.wait_for_end() == ["COMPLETED", "FAILED"]


def test_lost_job_has_no_exit_code(slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "POLL_S", 0.0)
    slurm.slots = 0
    queue = cluster()
    id = queue.submit([command("one")])
    assert queue.ended() == []
    slurm.lose(id)
    with monkeypatch.context() as silent:
        silent.setenv("PATH", "")
        assert queue.ended() == [], "a scheduler that does not answer has lost nothing"
        with pytest.raises(RunError, match="does not say which runs are queued"):
            queue.adopt([])
    assert queue.ended() == [Ended("one", None)] and queue.ended() == []


def test_queued_jobs_are_adopted_once_submitted(slurm: FakeSlurm) -> None:
    slurm.slots = 0
    cluster().submit([command("one")])
    later = cluster()
    assert later.adopt([command("one"), command("two")]) == ["one"]
    Path("logs/one.exit").write_text("0\n")
    assert later.ended() == [Ended("one", 0)]
    assert cluster().adopt([command("one")]) == [], "it has ended, though it is still listed"


def test_grid_is_submitted_as_one_array(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    slurm.slots = 0
    words = ["algo=q_learning", "env=FrozenLake", "seed=0,1,2", "device=cuda", "name=grid"]
    options = ["time=4h", "memory=16G", "cpus=2", "gpus=1", "workers=2", "setup=['export A=1']", "options.account=mine"]
    assert main(["train", "-m", *words, "submit=slurm", *(f"submit.{option}" for option in options)]) == 0
    assert capsys.readouterr().out == "submitted to slurm: 3 jobs, 100; rlrun status runs/grid\n"
    assert list(slurm.jobs()) == ["100_0", "100_1", "100_2"]
    found = slurm.job("100_2")["options"]
    expected = {"array": "0-2%2", "time": "240", "mem": "16G", "cpus-per-task": "2", "account": "mine"}
    assert found | expected | {"gpus-per-node": "1", "signal": "USR2@120"} == found
    assert "\nexport A=1\n" in (slurm.folder / "100.sh").read_text()
    assert not [path for path in Path("runs/grid").iterdir() if path.is_dir()], "folders are made by the runs"


def test_run_of_a_submission_is_found_again_by_resume_auto(
    slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm.slots = 0
    words = ["train", "algo=q_learning", "env=FrozenLake", "trainer.total_steps=20", "logger=[]"]
    assert main([*words, "run_dir=runs/mine"]) == 0
    assert main([*words, "run_dir=runs/mine", "resume=auto", "submit=slurm"]) == 0
    assert "job 100, run runs/mine\n" in capsys.readouterr().out
    assert main([*words, "run_dir=runs/mine", "submit=slurm"]) == 2
    assert "run_dir=runs/mine already holds a run" in capsys.readouterr().err


def test_refused_submission_has_one_line(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *RUN, "submit=slurm", "submit.partition=full"]) == 1
    assert capsys.readouterr().err == "error: sbatch: error: invalid partition specified: full\n"


def test_folder_whose_name_would_be_lines_of_the_script_is_refused(
    slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path("paper\nsh x\nexit").absolute()
    folder.mkdir()
    line = "error: submit=slurm: the path {path} has control characters; rename the folder\n"
    assert main(["train", *RUN, f"run_dir={literal(str(folder / 'run'))}", "submit=slurm"]) == 2
    assert capsys.readouterr().err == line.format(path=printable(folder / "run"))
    monkeypatch.chdir(folder)
    assert main(["train", *RUN, f"run_dir={folder.parent / 'run'}", "submit=slurm"]) == 2
    assert capsys.readouterr().err == line.format(path=printable(folder / "runs/.submitit"))
    assert not slurm.jobs()


def test_files_of_a_submission_are_in_a_new_folder(slurm: FakeSlurm) -> None:
    """A prepared file with the name of the next job would be unpickled by this job."""
    slurm.slots = 0
    Path("runs/.submitit").mkdir(parents=True)
    planted = Path("runs/.submitit/100_submitted.pkl")
    planted.write_bytes(b"planted")
    for _ in range(2):
        assert main(["train", *RUN, "submit=slurm"]) == 0
    made = {path.parent for path in Path("runs/.submitit").rglob("*.pkl")} - {planted.parent}
    assert len(made) == 2 and planted.read_bytes() == b"planted"
    assert all(folder.stat().st_mode & 0o77 == 0 for folder in made)


@pytest.mark.parametrize("link", ["runs/.submitit", "runs/mine.log"])
def test_link_in_place_of_what_a_submission_writes_is_refused(
    link: str, slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("runs").mkdir()
    Path(link).symlink_to(tmp_path / "outside")
    assert main(["train", *RUN, "run_dir=runs/mine", "submit=slurm"]) == 2
    assert capsys.readouterr().err.startswith(f"error: {link}: is a symbolic link")
    assert not slurm.jobs() and not (tmp_path / "outside").exists()


def test_machine_without_slurm_has_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")
    for words in (["train", *RUN, "submit=slurm"], [*SWEEP, "submit.driver=here"]):
        assert main(words) == 2
        assert capsys.readouterr().err == (
            "error: submit=slurm: this machine has no sbatch, squeue, srun; submit where Slurm is installed, or try it "
            "with submit.executor=local\n"
        )
    assert not list(tmp_path.iterdir())


def test_driver_is_submitted_as_a_small_job_once(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    slurm.slots = 0
    assert main([*SWEEP, "submit.gpus=1", "submit.partition=gpu"]) == 0
    assert f"submitted to Slurm: job 100, the driver of {HOME}" in capsys.readouterr().out
    options = slurm.job("100")["options"]
    assert options["partition"] == "gpu" and "gpus-per-node" not in options
    assert main(SWEEP) == 2
    assert capsys.readouterr().err == f"error: {HOME}: its driver is queued or running; rlrun sweep status {HOME}\n"
    assert list(slurm.jobs()) == ["100"] and not HOME.exists()


def test_pending_run_of_a_killed_driver_is_not_submitted_twice(
    slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm.slots = 0
    words = [*SWEEP, "trials=1", "submit.driver=here"]

    def killed(driver: Driver) -> None:
        if slurm.jobs():
            raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(Driver, "collect", killed)
        with pytest.raises(KilledError):
            main(words)
    assert slurm.jobs() == {"100": "PENDING"}
    slurm.slots = 1
    assert main(words) == 0
    assert slurm.wait_for_end() == ["COMPLETED"]
    assert [event["event"] for event in journal.read(HOME / "journal.jsonl")] == ["asked", "scored", "won"]


def test_stopped_sweep_leaves_no_jobs(slurm: FakeSlurm, tmp_path: Path) -> None:
    slurm.slots = 1
    words = [*SWEEP, "trainer.total_steps=1e9", "trials=2", "workers=2", "submit.driver=here"]
    driver = Child(words, tmp_path / "driver.log")
    slurm.wait(lambda: sorted(slurm.jobs().values()) == ["PENDING", "RUNNING"])
    slurm.wait(lambda: len(list(HOME.glob("trials/*/metrics.jsonl"))) == 1)
    assert main(["sweep", "stop", str(HOME)]) == 0
    assert driver.finish() == 130, driver.said()
    assert slurm.wait_for_end() == ["FAILED", "CANCELLED"]
    (run,) = HOME.glob("trials/*/summary.json")
    assert json.loads(run.read_text())["status"] == "stopped"


@pytest.mark.slow
def test_lost_run_of_a_killed_driver_is_submitted_again(slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "POLL_S", 0.2)
    slurm.slots = 0
    words = [*SWEEP, "trials=2", "workers=2", "submit.driver=here"]
    driver = subprocess.Popen([sys.executable, "-m", "rlrun", *words], env=os.environ, stdout=subprocess.DEVNULL)
    slurm.wait(lambda: len(list(Path("runs/.submitit").glob("*_submitted.pkl"))) == 2)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    slurm.lose("100")
    slurm.slots = 2
    assert main(words) == 0
    assert slurm.wait_for_end() == ["NODE_FAIL", "COMPLETED", "COMPLETED"]
    names = [slurm.job(id)["options"]["job-name"].rpartition("/")[2] for id in slurm.jobs()]
    assert names == ["0000-s0", "0001-s0", "0000-s0"]
