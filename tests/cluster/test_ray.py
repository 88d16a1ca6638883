"""Actors of Ray, with a stand-in for Ray itself; `test_equal_sweeps.py` uses the real one."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import stand_in_ray

import rlrun
from rlrun.cli import main
from rlrun.cluster import Command, Ended, scheduler
from rlrun.cluster.ray import Ray, RayConfig


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[stand_in_ray.Cluster]:
    found = stand_in_ray.Cluster()
    monkeypatch.setitem(sys.modules, "ray", found)
    monkeypatch.setenv("PYTHONPATH", str(Path(rlrun.__file__).parents[1]))
    monkeypatch.chdir(tmp_path)
    yield found
    for runner in found.objects.values():
        runner.process.kill()
        runner.process.wait()


def started(address: str = "auto") -> Ray:
    return Ray(RayConfig(address=address, cpus=2, gpus=0.5))


def all_ended(ray: Ray, count: int) -> list[Ended]:
    found: list[Ended] = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        found += ray.ended()
        time.sleep(0.01)
    return sorted(found)


def command(name: str, *words: str) -> Command:
    return Command(name, list(words), Path("logs", f"{name}.log"))


def waiting(name: str) -> Command:
    """A command that does not end by itself."""
    own = ["algo=q_learning", "env=FrozenLake", "trainer.total_steps=1e9", "logger=[]", "run_dir=run"]
    return command(name, "train", *own)


def test_ray_does_not_have_its_workers_search_the_current_folder(cluster: stand_in_ray.Cluster) -> None:
    here = Path.cwd()
    started()
    assert cluster.folder not in (here, Path(rlrun.__file__).parent) and not any(cluster.folder.iterdir())
    assert Path.cwd() == here


def test_ray_does_not_print_about_lost_actors_unless_the_user_has_connected_it(cluster: stand_in_ray.Cluster) -> None:
    cluster.connected = {"address": "that of the user"}
    started()
    assert cluster._private.worker._worker_logs_enabled
    cluster.shutdown()
    started()
    assert not cluster._private.worker._worker_logs_enabled


def test_actors_end_with_their_exit_code_and_a_log(cluster: stand_in_ray.Cluster) -> None:
    ray = started()
    ray.submit([command("good", "--version"), command("bad", "trian")])
    assert all_ended(ray, 2) == [Ended("bad", 2), Ended("good", 0)]
    assert Path("logs/good.log").read_text() == "rlrun 0.1.0\n"
    assert cluster.options == {"lifetime": "detached", "max_restarts": -1, "num_cpus": 2, "num_gpus": 0.5}
    while cluster.names:
        time.sleep(0.01)


def test_actors_outlive_their_process_and_are_adopted(
    cluster: stand_in_ray.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "POLL_S", 0.0)
    earlier = started()
    earlier.submit([waiting("one")])
    earlier.close()
    later = started()
    assert later.adopt([waiting("one"), waiting("two")]) == ["one"] and later.ended() == []
    for runner in cluster.objects.values():
        runner.process.kill()
    while cluster.names:
        time.sleep(0.01)
    assert later.ended() == [Ended("one", None)], "a killed command has no exit code"


def test_actors_of_a_cluster_of_this_process_are_interrupted(cluster: stand_in_ray.Cluster) -> None:
    ray = started("local")
    ray.submit([waiting("one")])
    ray.close()
    (runner,) = cluster.objects.values()
    assert runner.process.returncode is not None


def test_actors_of_an_earlier_process_are_interrupted(cluster: stand_in_ray.Cluster) -> None:
    earlier = started()
    earlier.submit([waiting("one"), waiting("two")])
    earlier.close()
    later = started()
    assert later.adopt([waiting("one")]) == ["one"]
    later.interrupt()
    one, two = cluster.objects.values()
    assert one.process.returncode is not None and two.process.poll() is None
    assert len(cluster.names) == 1


@pytest.mark.parametrize(
    ("words", "is_running", "line"),
    [
        (
            ["submit=ray"], False,
            "error: submit.address=auto: Could not find any running Ray instance; `ray start --head` starts a cluster "
            "on this machine",
        ),
        (
            ["submit=ray", "submit.address=local"], True,
            "error: submit.address=local: such a cluster would end with this command; `ray start --head` starts one "
            "that does not",
        ),
        (
            ["submit=ray", "submit.address=127.0.0.1:1"], True,
            "error: submit.address=127.0.0.1:1: nobody answers there ([Errno 111] Connection refused); "
            "`ray start --head` starts a cluster on this machine",
        ),
    ],
)  # fmt: skip
def test_run_without_a_lasting_cluster_has_one_line(
    words: list[str], is_running: bool, line: str, cluster: stand_in_ray.Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.is_running = is_running
    assert main(["train", "algo=q_learning", "env=FrozenLake", *words]) == 2
    assert capsys.readouterr().err == f"{line}\n"


def test_lacking_extra_has_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lacking: Any = {"ray": ("no_such_module",)}
    monkeypatch.setattr("rlrun.imports.EXTRAS", lacking)
    assert main(["train", "algo=q_learning", "env=FrozenLake", "submit=ray"]) == 2
    assert capsys.readouterr().err.startswith("error: submit=ray: needs no_such_module")
