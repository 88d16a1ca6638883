"""Runs with shards that are killed, and resumed with the shards in other processes."""

import importlib.util
import signal
from functools import partial
from pathlib import Path

import pytest
from rows import Options, shards
from rows.processes import aside, warm
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


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs Ray")
def test_machines_that_come_and_go_change_no_result() -> None:
    tally = aside(lambda: vars(shards.lost_actors(Options(count=6))))
    assert tally["cases"] >= 6 and not tally["failures"]


@pytest.mark.slow
def test_workers_that_come_and_go_change_no_result() -> None:
    tally = aside(lambda: vars(shards.lost_workers(Options(count=9))))
    assert tally["cases"] >= 9 and not tally["failures"]
