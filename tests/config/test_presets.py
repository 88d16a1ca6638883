"""With every preset, as `rlrun train algo=... env=...` finds it, a run begins: all values are valid."""

from pathlib import Path

import pytest

from rlrun.config.jobs import jobs
from rlrun.config.schema import run_config
from rlrun.run.assemble import build_loop

PRESETS = sorted(path.stem for path in (Path(__file__).parents[2] / "conf" / "preset").glob("*.yaml"))
EXTRAS = {"Pong": "ale_py", "LunarLander": "Box2D", "FetchReach": "gymnasium_robotics"}


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_makes_a_run_that_begins(preset: str) -> None:
    algo, _, env = preset.partition("-")
    if env in EXTRAS:
        pytest.importorskip(EXTRAS[env])
    [job] = jobs([f"algo={algo}", f"env={env}"])
    assert job.values["preset"] == preset
    if job.values["algo"]["loop"].get("data", "") is None:
        pytest.skip("needs data")
    build_loop(run_config(job.values)).begin()
