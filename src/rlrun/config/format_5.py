"""What changed from format 4 to 5: log rows hold the means of an agent's metrics, and more about episodes; exploration
noise became a part of `algo`.

The posterior of neural linear became one of all pulls, which the network follows, and not the other way round.
"""

from typing import Any

from rlrun.config.format_3 import ON_POLICY, SAC
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
WITHOUT_NOISE = (*SAC, "crossq")
NOISE_KEYS = ("noise", "noise_std", "noise_theta")
TRAINER = "trainer._extra_state"
LOOP = "_extra_state"
CURRICULUM = "curriculum._extra_state"


def regroup(values: dict[str, Any]) -> None:
    """Changes the sections `algo` and `algo.particle` of a config, in place."""
    algo = values.get("algo")
    if not isinstance(algo, dict):
        return
    for section in (algo, algo.get("particle")):
        if isinstance(section, dict):
            regroup_noise(section)
    if algo.get("name") == "neural_linear" and algo.pop("refit_every", None):
        algo["nn_update_ratio"] = 1  # the network took a gradient step in every update


def regroup_noise(section: dict[str, Any]) -> None:
    """Creates `noise` from the keys `noise`, `noise_std` and `noise_theta` of an algorithm, in place.

    A section that lacks one of these keys is left unchanged; the check of the config reports the missing key later.
    """
    name = section.get("name")
    if name == "td3" and section.keys() >= {*NOISE_KEYS}:
        old = {key: section.pop(key) for key in NOISE_KEYS}
        section["noise"] = {"name": old["noise"], "mean": 0.0, "std": old["noise_std"]}
        if old["noise"] == "ou":
            section["noise"] |= {"theta": old["noise_theta"], "dt": 1.0, "initial": 0.0}
    elif name in ON_POLICY and "noise_std" in section:
        std = section.pop("noise_std")
        section["noise"] = {"name": "none"}
        if std:
            section["noise"] = {"name": "gaussian", "mean": 0.0, "std": std}
    elif name in WITHOUT_NOISE and "entropy" in section:
        section["noise"] = {"name": "none"}


def restate(state: dict[str, Any]) -> None:
    """Changes the whole state, in place.

    Metrics of the last update are removed, because a resumed run takes means from there on. Measures of environments
    move into a module of their own. The posterior of neural linear is computed anew in the first update.
    """
    count = state.get("agent.regression.count")
    if count is not None and "agent.q.output.weight" in state:
        state.setdefault("agent.num_added", count.new_zeros(()).long())
    curriculum = state.get(CURRICULUM)
    if isinstance(curriculum, dict):
        state[CURRICULUM] = {name: stage_and_results(saved) for name, saved in curriculum.items()}
    own = state.get(TRAINER)
    if isinstance(own, dict) and "metrics" in own:
        state[TRAINER] = {name: value for name, value in own.items() if name != "metrics"}
        state["means._extra_state"] = {}
    loop = state.get(LOOP)
    if isinstance(loop, dict) and "measures" in loop:
        state[LOOP] = {name: value for name, value in loop.items() if name != "measures"}
        state["measures._extra_state"] = measures(loop["measures"])
        if "fitness" in loop:  # returns of the evolution loop were not discounted
            state[LOOP]["discounts"] = loop["returns"].new_ones(loop["returns"].shape)


def stage_and_results(saved: Any) -> Any:
    """Returns the state of a scheduled parameter, stored as a list of its stage and the results of episodes."""
    if not isinstance(saved, list) or not saved:
        return saved
    return {"stage": saved[0], "results": saved[1:]}


def measures(stored: dict[str, tuple[float, int, float]]) -> dict[str, Any]:
    """Returns the state of measures, stored as recent sum, number of timesteps and total, without moving averages."""
    recent = {name: (total, count) for name, (total, count, _) in stored.items() if count}
    return {"recent": recent, "totals": {name: total for name, (_, _, total) in stored.items()}, "rows": []}
