"""Workers of environments that do not import torch themselves start without it."""

import subprocess
import sys
from pathlib import Path

import pytest

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
