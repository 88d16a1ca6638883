"""What changed from format 4 to 5: log rows hold the means of an agent's metrics, and more about episodes.

The posterior of neural linear became one of all pulls, which the network follows, and not the other way round.
"""

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


def regroup(values: dict[str, Any]) -> None:
    """Replaces `refit_every` of neural linear by `nn_update_ratio`, in place."""
    algo = values.get("algo")
    if isinstance(algo, dict) and algo.get("name") == "neural_linear" and algo.pop("refit_every", None):
        algo["nn_update_ratio"] = 1  # the network took a gradient step in every update


def restate(state: dict[str, Any]) -> None:
    """Changes the whole state, in place.

    Metrics of the last update are removed, because a resumed run takes means from there on. Measures of environments
    move into a module of their own. The posterior of neural linear is computed anew in the first update.
    """
    count = state.get("agent.regression.count")
    if count is not None and "agent.q.output.weight" in state:
        state.setdefault("agent.num_added", count.new_zeros(()).long())
    own = state.get(TRAINER)
    if isinstance(own, dict) and "metrics" in own:
        state[TRAINER] = {name: value for name, value in own.items() if name != "metrics"}
        state["means._extra_state"] = {}
    loop = state.get(LOOP)
    if isinstance(loop, dict) and "measures" in loop:
        state[LOOP] = {name: value for name, value in loop.items() if name != "measures"}
        state["measures._extra_state"] = measures(loop["measures"])


def measures(stored: dict[str, tuple[float, int, float]]) -> dict[str, Any]:
    """Returns the state of measures, stored as recent sum, number of timesteps and total, without moving averages."""
    recent = {name: (total, count) for name, (total, count, _) in stored.items() if count}
    return {"recent": recent, "totals": {name: total for name, (_, _, total) in stored.items()}, "rows": []}
