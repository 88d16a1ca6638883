"""The changes from format 4 to 5."""

from rlrun.config.history import comparable, renamed_metrics, renamed_state


def test_metrics_of_the_last_update_are_no_state_any_more() -> None:
    state = {
        "trainer._extra_state": {"progress": {}, "metrics": {"critic": 4}},
        "_extra_state": {"steps": 9, "measures": {"regret": (2.0, 4, 8.0), "best_arm": (0.0, 0, 3.0)}},
    }
    assert renamed_state(state, 4, "ucb") == {
        "trainer._extra_state": {"progress": {}},
        "_extra_state": {"steps": 9},
        "means._extra_state": {},
        "measures._extra_state": {
            "recent": {"regret": (2.0, 4)},
            "totals": {"regret": 8.0, "best_arm": 3.0},
            "rows": [],
        },
    }


def test_epsilon_is_a_metric_of_training() -> None:
    assert renamed_metrics({"loss/epsilon": 0.1}, 4, "dqn") == {"train/epsilon": 0.1}


def test_rows_are_compared_without_metrics_of_another_meaning() -> None:
    row = {"step": 1, "loss/critic": 2.0, "train/return_mean": 3.0, "train/return_std": 4.0}
    assert comparable(row, 4) == {"step": 1, "train/return_mean": 3.0}
    assert comparable(row, 5) == row
