"""Configs, metrics and state of earlier formats, shown by two changes."""

from typing import Any

import pytest

from rlrun.errors import ConfigError
from rlrun.formats import history
from rlrun.formats.history import (
    Added,
    FormatChange,
    Renamed,
    former_keys,
    former_metrics,
    metrics_format,
    renamed_metrics,
    renamed_state,
    upgraded,
)


def parted(values: dict[str, Any]) -> None:
    """Makes the setting `clip` of an algorithm a part."""
    if "clip" in values["algo"]:
        values["algo"]["clip"] = {"name": "range", "epsilon": values["algo"]["clip"]}


def joined(state: dict[str, Any]) -> None:
    """Joins the sums of two kinds of metrics."""
    if "sums" in state:
        state["metrics"] = {"loss/q": state.pop("sums")}


REAL_CHANGES = history.CHANGES
CHANGES = (
    FormatChange(
        keys=(Renamed("algo.lr", "algo.rate"), Renamed("algo.temp", "algo.alpha", ("sac",))),
        metrics=(Renamed("loss/q", "loss/value"), Renamed("loss/temp", "loss/alpha", ("sac",))),
        state=(
            Renamed("agent.policy", "agent.actor"),
            Renamed("agent.temp", "agent.alpha", ("sac", "td3")),
            Renamed("loop._extra_state.seen.rows", "loop._extra_state.seen.steps"),
        ),
        regroup=parted,
        restate=joined,
    ),
    FormatChange(
        added=(Added("env.new", {"a": 1}, beside="id"), Added("algo.new", 2, beside="buffer")),
        keys=(Renamed("seed", "run_seed"), Renamed("algo.rate", "algo.learning_rate")),
        metrics=(Renamed("loss/value", "loss/critic"),),
    ),
)


@pytest.fixture(autouse=True)
def two_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "CHANGES", CHANGES)
    monkeypatch.setattr(history, "FIRST", 1)
    monkeypatch.setattr(history, "FORMAT", 3)


def test_history_renames_keys_and_fills_in_those_that_were_added() -> None:
    old: dict[str, Any] = {"format": 1, "seed": 3, "algo": {"lr": 0.1}, "env": {"id": "X"}}
    values, filled = upgraded(old)
    assert values == {"run_seed": 3, "algo": {"learning_rate": 0.1}, "env": {"id": "X", "new": {"a": 1}}}
    assert filled == ["env.new={'a': 1}"]
    assert old == {"format": 1, "seed": 3, "algo": {"lr": 0.1}, "env": {"id": "X"}}, "the stored values are unchanged"


def test_history_applies_only_what_came_after_the_stored_format() -> None:
    assert upgraded({"format": 2, "algo": {"lr": 0.1}, "env": {}}) == ({"algo": {"lr": 0.1}, "env": {}}, [])
    assert upgraded({"format": 3, "seed": 1, "env": {"id": "X"}}) == ({"seed": 1, "env": {"id": "X"}}, [])


def test_history_renames_keys_of_the_named_agents_only() -> None:
    for algo, key in (("sac", "alpha"), ("td3", "temp"), (["sac"], "temp")):
        values, _ = upgraded({"format": 1, "algo": {"name": algo, "temp": 0.1}})
        assert values == {"algo": {"name": algo, key: 0.1}}


def test_former_keys_go_back_through_all_formats() -> None:
    assert former_keys("algo.learning_rate", "td3") == ["algo.rate", "algo.lr"]
    assert former_keys("algo.rate", "td3") == ["algo.lr"]
    assert former_keys("algo.alpha", "sac") == ["algo.temp"]
    assert former_keys("algo.alpha", "td3") == []


@pytest.mark.parametrize("stored", [4, 10**50, "2", 2.0, True, []])
def test_history_refuses_formats_that_it_does_not_know(stored: Any) -> None:
    with pytest.raises(ConfigError, match=r"reads formats up to 3$"):
        upgraded({"format": stored})


@pytest.mark.parametrize(
    ("head", "found"), [({"format": 1}, "format 1"), ({"format": -1}, "format -1"), ({}, "no format")]
)
def test_history_names_the_last_commit_that_converts_earlier_formats(
    head: dict[str, int], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "FIRST", 2)
    line = f"{found}: rlrun reads formats from 2 on; commit {history.CONVERTS} is the last that converts earlier ones"
    with pytest.raises(ConfigError, match=f"^{line}$"):
        upgraded(head)


def test_history_applies_changes_after_the_first_format_that_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "FIRST", 2)
    monkeypatch.setattr(history, "FORMAT", 4)
    assert upgraded({"format": 2, "seed": 1, "algo": {"lr": 0.1}})[0] == {"run_seed": 1, "algo": {"learning_rate": 0.1}}
    assert renamed_metrics({"loss/q": 1.0}, 2, "td3") == {"loss/critic": 1.0}
    assert former_metrics({"loss/critic": 1.0}, 3, "td3") == {"loss/value": 1.0}
    assert renamed_state({"agent.policy": 1}, 2, "ppo") == {"agent.actor": 1}
    assert renamed_state({"agent.policy": 1}, 3, "ppo") == {"agent.policy": 1}


def test_history_changes_the_form_of_settings_and_state() -> None:
    values, _ = upgraded({"format": 1, "algo": {"clip": 0.2}})
    assert values["algo"] == {"clip": {"name": "range", "epsilon": 0.2}}
    assert upgraded({"format": 2, "algo": {"clip": 0.2}})[0] == {"algo": {"clip": 0.2}}
    assert renamed_state({"sums": 3.0}, 1, "ppo") == {"metrics": {"loss/q": 3.0}}
    assert renamed_state({"sums": 3.0}, 2, "ppo") == {"sums": 3.0}


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


@pytest.mark.parametrize("change", [*CHANGES, *REAL_CHANGES])
def test_metrics_renamed_in_one_format_have_one_former_name_for_each_algorithm(change: FormatChange) -> None:
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
