"""The changes from format 5 to 6."""

from typing import Any

from rlrun.formats.history import renamed_state


def test_metrics_since_the_last_row_are_joined() -> None:
    state: dict[str, Any] = {
        "means._extra_state": {"critic": [4.0, 2]},
        "measures._extra_state": {
            "recent": {"regret": (2.0, 4)},
            "totals": {"regret": 8.0},
            "rows": [{"regret": (6.0, 4)}],
        },
        "_extra_state": {"steps": 9, "episodes": [(1.0, 3)], "logged": {"x": (2.0, 1)}},
    }
    assert renamed_state(state, 5, "ucb") == {
        "_extra_state": {"steps": 9},
        "metrics._extra_state": {
            "updates": {"loss/critic": [4.0, 2]},
            "logged": {"custom/x": (2.0, 1)},
            "recent": {"train/regret": (2.0, 4)},
            "totals": {"train/regret": 8.0},
            "rows": [{"train/regret": (6.0, 4)}],
            "episodes": [(1.0, 3)],
        },
    }
