"""Commands that are started as processes of this machine."""

import sys
import time
from pathlib import Path

import pytest

from rlrun.cluster import Cluster, Command, Ended
from rlrun.cluster.local import Forks, Processes

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="forks are used on Linux")


def all_ended(cluster: Cluster, count: int) -> list[Ended]:
    """Waits for so many commands, and returns them by name."""
    found: list[Ended] = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        found += cluster.ended()
        time.sleep(0.01)
    return sorted(found)


@pytest.mark.parametrize("kind", [Processes, pytest.param(Forks, marks=needs_linux)])
def test_commands_end_with_their_exit_code_and_a_log(kind: type, tmp_path: Path) -> None:
    cluster = kind()
    cluster.submit([Command("good", ["--version"], tmp_path / "good.log")])
    cluster.submit([Command("bad", ["trian"], tmp_path / "bad.log")])
    assert all_ended(cluster, 2) == [Ended("bad", 2), Ended("good", 0)]
    assert (tmp_path / "good.log").read_text().startswith("rlrun ")
    assert "unknown command 'trian'" in (tmp_path / "bad.log").read_text()
    cluster.close()


@needs_linux
def test_commands_of_a_server_that_was_killed_have_no_exit_code(tmp_path: Path) -> None:
    cluster = Forks()
    cluster.submit([Command("one", ["--version"], tmp_path / "one.log")])
    assert cluster._server is not None
    cluster._server.kill()
    cluster._server.wait()
    assert all_ended(cluster, 1) == [Ended("one", None)]
    cluster.close()


@needs_linux
def test_command_that_is_interrupted_before_it_has_a_signal_handler_ends(tmp_path: Path) -> None:
    cluster = Forks()
    words = ["train", "algo=q_learning", "env=FrozenLake", "trainer.total_steps=300_000", f"run_dir={tmp_path / 'run'}"]
    cluster.submit([Command("one", words, tmp_path / "one.log")])
    cluster.close()  # the server, which still imports torch, receives both requests at once
    assert not (tmp_path / "run").exists()
