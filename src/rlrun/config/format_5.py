"""What changed from format 4 to 5: log rows hold the means of an agent's metrics, and more about episodes."""

from typing import Any

from rlrun.config.renamed import Renamed

METRICS = (Renamed("loss/epsilon", "train/epsilon"),)
# Patterns of metrics that are new, or that were those of the last update and are now means since the last row.
REMEASURED = (
    "loss/*",
    "train/return_std",
    "train/return_min",
    "train/return_max",
    "train/return_median",
    "train/std",
    "train/*learning_rate",
    "eval/return_median",
    "train/regret_smooth",
    "train/best_arm_smooth",
    "train/reward_smooth",
    "train/reward",
    "train/reward_total",
)
TRAINER = "trainer._extra_state"
LOOP = "_extra_state"


def restate(state: dict[str, Any]) -> None:
    """Removes the metrics of the last update, because a resumed run takes means from there on, moves the measures of
    the environments into a module of their own, and adds that replay was never emptied."""
    own = state.get(TRAINER)
    if isinstance(own, dict) and "metrics" in own:
        state[TRAINER] = {name: value for name, value in own.items() if name != "metrics"}
        state["means._extra_state"] = {}
    loop = state.get(LOOP)
    if isinstance(loop, dict) and "measures" in loop:
        state[LOOP] = {name: value for name, value in loop.items() if name != "measures"}
        state["measures._extra_state"] = measures(loop["measures"])
    loop = state.get(LOOP)
    if isinstance(loop, dict) and "refill" in loop:
        kept = {name: value for name, value in loop.items() if name != "refill"}
        state[LOOP] = kept | {"emptied_at": 0, "paused_steps": 0}


def measures(stored: dict[str, tuple[float, int, float]]) -> dict[str, Any]:
    """Returns the state of measures, stored as recent sum, number of timesteps and total, without moving averages."""
    recent = {name: (total, count) for name, (total, count, _) in stored.items() if count}
    return {"recent": recent, "totals": {name: total for name, (_, _, total) in stored.items()}, "rows": []}
