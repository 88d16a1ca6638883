"""Runs with shards that are killed, and resumed with the shards in other processes."""

import signal
from functools import partial
from pathlib import Path

import pytest
from rows.processes import warm
from rows.runs import Disturbed
from test_options import Option, command, kill_after_a_snapshot


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    warm([["algo=sac", "env=Pendulum"]])


@pytest.mark.parametrize(("loop", "before", "after"), [("onpolicy", "none", "local"), ("offpolicy", "local", "none")])
def test_a_killed_run_goes_on_in_other_processes(loop: str, before: str, after: str, tmp_path: Path) -> None:
    words = command(Option(f"loop.{loop}", "algo.loop.shards", 2), tmp_path, engine="eager")
    alone = Disturbed(tmp_path / "alone", words)
    killed = Disturbed(tmp_path / "killed", [*words, f"cluster={before}"], [f"cluster={after}"])
    child = alone.go()
    assert child.finish() == 0, child.said()
    child = killed.go(partial(kill_after_a_snapshot, killed.path))
    assert child.finish() == -signal.SIGKILL and killed.latest() > 0, child.said()
    child = killed.go()
    assert child.finish() == 0 and "not exact" not in child.said(), child.said()
    assert not killed.differences(alone)
