"""What changed from format 5 to 6: one module collects all metrics for the next log row, under their names there."""

from typing import Any

LOOP = "_extra_state"
MEANS = "means._extra_state"
MEASURES = "measures._extra_state"


def restate(state: dict[str, Any]) -> None:
    """Joins the metrics since the last log row, in place."""
    if MEANS not in state or MEASURES not in state:
        return
    means = state.pop(MEANS)
    measures = state.pop(MEASURES)
    loop = dict(state[LOOP])
    state["metrics._extra_state"] = {
        "updates": prefixed("loss/", means),
        "logged": prefixed("custom/", loop.pop("logged", {})),
        "recent": prefixed("train/", measures["recent"]),
        "totals": prefixed("train/", measures["totals"]),
        "rows": [prefixed("train/", row) for row in measures["rows"]],
        "episodes": loop.pop("episodes"),
    }
    state[LOOP] = loop


def prefixed(prefix: str, values: dict[str, object]) -> dict[str, object]:
    """Returns the values with the names of log rows."""
    return {f"{prefix}{name}": value for name, value in values.items()}
