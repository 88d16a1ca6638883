"""Configs of earlier formats."""

from typing import Any

import pytest

from rlrun.config import history
from rlrun.config.history import Added, Change, renamed_state, upgraded
from rlrun.errors import ConfigError

CHANGES = (
    Change(keys={"algo.lr": "algo.learning_rate"}, state={"agent.policy": "agent.actor"}),
    Change(
        added=(Added("env.new", {"a": 1}, beside="id"), Added("algo.new", 2, beside="buffer")),
        keys={"seed": "run_seed"},
    ),
)


@pytest.fixture(autouse=True)
def two_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "CHANGES", CHANGES)
    monkeypatch.setattr(history, "FORMAT", 3)


def test_history_renames_keys_and_fills_in_those_that_were_added() -> None:
    old: dict[str, Any] = {"seed": 3, "algo": {"lr": 0.1}, "env": {"id": "X"}}
    values, filled = upgraded(old)
    assert values == {"run_seed": 3, "algo": {"learning_rate": 0.1}, "env": {"id": "X", "new": {"a": 1}}}
    assert filled == ["env.new={'a': 1}"]
    assert old == {"seed": 3, "algo": {"lr": 0.1}, "env": {"id": "X"}}, "the stored values stay as they are"


def test_history_applies_only_what_came_after_the_stored_format() -> None:
    assert upgraded({"format": 2, "algo": {"lr": 0.1}, "env": {}}) == ({"algo": {"lr": 0.1}, "env": {}}, [])
    assert upgraded({"format": 3, "seed": 1, "env": {"id": "X"}}) == ({"seed": 1, "env": {"id": "X"}}, [])


@pytest.mark.parametrize("stored", [4, 0, -1, "2", 2.0, True, None, []])
def test_history_refuses_formats_that_it_does_not_know(stored: Any) -> None:
    with pytest.raises(ConfigError, match="reads formats 1 to 3"):
        upgraded({"format": stored})


def test_history_renames_state_paths_by_whole_names() -> None:
    state = {"agent.policy.weight": 1, "agent.policy_mean": 2, "agent.policy": 3}
    assert renamed_state(state, 1) == {"agent.actor.weight": 1, "agent.policy_mean": 2, "agent.actor": 3}
    assert renamed_state(state, 2) == state
