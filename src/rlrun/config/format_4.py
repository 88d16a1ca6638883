"""What changed from format 3 to 4: the loggers of a run became parts with settings, in place of true and false.

The posterior of neural linear became one of all pulls, which the network follows, and not the other way round.
"""

from typing import Any

from rlrun.config.loggers import SECTION, switched


def regroup(values: dict[str, Any]) -> None:
    """Replaces `logger: {console: true, tensorboard: false}` by the loggers that are on, and `refit_every` of neural
    linear by `nn_update_ratio`, in place."""
    section = values.get(SECTION)
    if isinstance(section, dict):
        values[SECTION] = switched(section)
    algo = values.get("algo")
    if isinstance(algo, dict) and algo.get("name") == "neural_linear" and algo.pop("refit_every", None):
        algo["nn_update_ratio"] = 1  # the network took a gradient step in every update


def restate(state: dict[str, Any]) -> None:
    """Adds `num_added` of neural linear: its posterior is computed anew in the first update."""
    count = state.get("agent.regression.count")
    if count is not None and "agent.q.output.weight" in state:
        state.setdefault("agent.num_added", count.new_zeros(()).long())
