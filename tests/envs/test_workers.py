"""How the workers of environments start."""

import subprocess
import sys
from pathlib import Path

import pytest

from rlrun.envs.making.make import Recipe, find
from rlrun.envs.stepping.workers import SilentError, TimedPipe, serve_slot, started

CODE = """
import sys
from pathlib import Path
from rlrun.envs.making.make import Recipe, find
from rlrun.envs.saving import examination
from rlrun.envs.stepping import goal_functions, trial, workers

def maps(id):
    pipe = workers.started(workers.serve_slot, Recipe(find(id), {}, (), None, None, id), 60.0)
    pipe.result()
    return Path(f"/proc/{pipe.process.pid}/maps").read_text()

assert "libtorch" not in maps("CartPole-v1") and "libtorch" not in maps("rlrun/PointReach-v0")
assert "torch" not in sys.modules
"""


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux")
def test_workers_start_without_torch() -> None:
    subprocess.run([sys.executable, "-c", CODE], check=True, timeout=100)


@pytest.mark.parametrize("error", [SilentError(0, "no answer"), KeyboardInterrupt()], ids=["silent", "interrupted"])
def test_an_error_while_a_worker_starts_is_raised_as_it_is(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def send(pipe: TimedPipe, message: object) -> None:
        raise error

    monkeypatch.setattr(TimedPipe, "send", send)
    with pytest.raises(type(error)) as raised:
        started(serve_slot, Recipe(find("CartPole-v1"), {}, (), None, None, "CartPole-v1"), 10.0)
    assert raised.value is error
