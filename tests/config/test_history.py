"""Configs of earlier formats."""

from typing import Any

import pytest

from rlrun.config import history
from rlrun.config.history import (
    Added,
    Change,
    former_keys,
    former_metrics,
    metrics_format,
    renamed_metrics,
    renamed_state,
    upgraded,
)
from rlrun.config.renamed import Renamed
from rlrun.errors import ConfigError

REAL_CHANGES = history.CHANGES
CHANGES = (
    Change(
        keys=(Renamed("algo.lr", "algo.rate"), Renamed("algo.temp", "algo.alpha", ("sac",))),
        metrics=(Renamed("loss/q", "loss/value"), Renamed("loss/temp", "loss/alpha", ("sac",))),
        state=(
            Renamed("agent.policy", "agent.actor"),
            Renamed("agent.temp", "agent.alpha", ("sac", "td3")),
            Renamed("loop._extra_state.seen.rows", "loop._extra_state.seen.steps"),
        ),
    ),
    Change(
        added=(Added("env.new", {"a": 1}, beside="id"), Added("algo.new", 2, beside="buffer")),
        keys=(Renamed("seed", "run_seed"), Renamed("algo.rate", "algo.learning_rate")),
        metrics=(Renamed("loss/value", "loss/critic"),),
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


def test_history_renames_keys_of_the_named_agents_only() -> None:
    for algo, key in (("sac", "alpha"), ("td3", "temp"), (["sac"], "temp")):
        values, _ = upgraded({"algo": {"name": algo, "temp": 0.1}})
        assert values == {"algo": {"name": algo, key: 0.1}}


def test_former_keys_go_back_through_all_formats() -> None:
    assert former_keys("algo.learning_rate", "td3") == ["algo.rate", "algo.lr"]
    assert former_keys("algo.rate", "td3") == ["algo.lr"]
    assert former_keys("algo.alpha", "sac") == ["algo.temp"]
    assert former_keys("algo.alpha", "td3") == []


@pytest.mark.parametrize("stored", [4, 0, -1, "2", 2.0, True, None, []])
def test_history_refuses_formats_that_it_does_not_know(stored: Any) -> None:
    with pytest.raises(ConfigError, match="reads formats 1 to 3"):
        upgraded({"format": stored})


def test_history_renames_metrics_by_whole_keys() -> None:
    row = {"step": 1, "loss/q": 2.0, "loss/q_max": 3.0, "loss/temp": 4.0}
    renamed = {"step": 1, "loss/critic": 2.0, "loss/q_max": 3.0, "loss/temp": 4.0}
    assert renamed_metrics(row, 1, "td3") == renamed
    assert list(renamed_metrics(row, 1, "sac")) == ["step", "loss/critic", "loss/q_max", "loss/alpha"]
    assert renamed_metrics(row, 2, "sac") == row


@pytest.mark.parametrize("stored", [1, 2, 3])
@pytest.mark.parametrize("algo", ["sac", "td3"])
def test_former_metrics_undo_renamed_metrics(stored: int, algo: str) -> None:
    names = ("loss/q", "loss/q_max", "loss/temp") if stored == 1 else ("loss/value", "loss/alpha")
    row: dict[str, Any] = {"step": 1, **dict.fromkeys(names, 2.0)}
    assert former_metrics(renamed_metrics(row, stored, algo), stored, algo) == row


@pytest.mark.parametrize("change", REAL_CHANGES, ids=lambda change: f"to_format_{REAL_CHANGES.index(change) + 2}")
def test_metrics_renamed_in_one_format_have_one_former_name_for_each_algorithm(change: Change) -> None:
    everywhere = [name.new for name in change.metrics if not name.algos]
    named = [(name.new, algo) for name in change.metrics for algo in name.algos]
    assert len({*everywhere}) == len(everywhere)
    assert len({*named}) == len(named)
    assert not {new for new, _ in named} & {*everywhere}


@pytest.mark.parametrize("stored", [3, 0, "1", 1.0, True, None])
def test_metrics_format_after_the_format_of_the_file_is_refused(stored: Any) -> None:
    with pytest.raises(ConfigError, match=r"metrics_format=.*: must be a whole number from 1 to 2"):
        metrics_format({"format": 2, "metrics_format": stored})


def test_history_renames_state_paths_by_whole_names() -> None:
    state = {"agent.policy.weight": 1, "agent.policy_mean": 2, "agent.policy": 3, "agent.temp": 4}
    moved = {"agent.actor.weight": 1, "agent.policy_mean": 2, "agent.actor": 3}
    assert renamed_state(state, 1, "sac") == {**moved, "agent.alpha": 4}
    assert renamed_state(state, 1, "ppo") == {**moved, "agent.temp": 4}
    assert renamed_state(state, 2, "sac") == state


def test_history_renames_state_inside_an_extra_state() -> None:
    state = {"loop._extra_state": {"seen": {"rows": 1, 7: 2}, "rows": 3}}
    assert renamed_state(state, 1, "ppo") == {"loop._extra_state": {"seen": {"steps": 1, 7: 2}, "rows": 3}}
    assert state == {"loop._extra_state": {"seen": {"rows": 1, 7: 2}, "rows": 3}}, "the given state stays as it is"
