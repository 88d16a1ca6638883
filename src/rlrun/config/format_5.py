"""What changed from format 4 to 5: log rows hold the means of an agent's metrics, and more about episodes; the
noise and the advantages of an algorithm became parts of it, and normalisation a section with its constants.

The posterior of neural linear became one of all pulls, which the network follows, and not the other way round.
"""

import re
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
    "train/success_fraction",
    "train/epsilon",
    "train/*learning_rate",
    "eval/return_median",
    "train/regret_smooth",
    "train/best_arm_smooth",
    "train/reward_smooth",
    "train/reward",
    "train/reward_total",
)
ESTIMATED = ("a2c", "ppo", "ppo_demos")
STATE = (
    Renamed("agent.moments", "agent.advantage.moments", (*ESTIMATED, "vtrace")),
    Renamed("agent.learner.moments", "agent.learner.advantage.moments", ("ppo_demos",)),
    Renamed("agent.particles.*.moments", "agent.particles.*.advantage.moments", ("svpg",)),
)
GAE_KEYS = ("gae_lambda", "value_lambda", "normalize_advantage")
VTRACE_KEYS = (*GAE_KEYS, "rho_clip", "c_clip")
WITHOUT_NOISE = (*SAC, "crossq")
NOISE_KEYS = ("noise", "noise_std", "noise_theta")
# constants that had no keys
NORMALIZE = {"clip_obs": 10.0, "clip_reward": 10.0, "reward_by": "returns", "epsilon": 1e-8, "gamma": None}
OWN_OPTIMIZER = ("optimizer", "lr_schedule", "max_grad_norm")  # of the critic; null: those of the agent
CLIP_RANGE = re.compile(r"agent\.(learner\.|particles\.\d+\.)?clip_range")
TRAINER = "trainer._extra_state"
LOOP = "_extra_state"
ENV = "env._extra_state"
CURRICULUM = "curriculum._extra_state"


def regroup(values: dict[str, Any]) -> None:
    """Changes the sections `algo`, `algo.particle` and `env.normalize` of a config, in place."""
    env = values.get("env")
    if isinstance(env, dict) and isinstance(env.get("normalize"), str):
        env["normalize"] = {"kind": env["normalize"]} | NORMALIZE
    algo = values.get("algo")
    if not isinstance(algo, dict):
        return
    for section in (algo, algo.get("particle")):
        if isinstance(section, dict):
            regroup_noise(section)
            regroup_advantage(section)
            add_own_optimizer(section.get("critic_update"))
    regroup_clip_range(algo)
    regroup_redq(algo)
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


def regroup_redq(algo: dict[str, Any]) -> None:
    """Turns the critic `redq` into the minimum over a random subset, in place: every critic may have such a subset."""
    critic = algo.get("critic")
    if isinstance(critic, dict) and critic.get("name") == "redq":
        critic["name"] = "min"


def add_own_optimizer(critic_update: Any) -> None:
    """Adds the settings of the critic's optimiser to a part `critic_update` that has an optimiser, in place."""
    if isinstance(critic_update, dict) and "learning_rate" in critic_update:
        for key in OWN_OPTIMIZER:
            critic_update.setdefault(key, None)


def regroup_advantage(section: dict[str, Any]) -> None:
    """Creates `advantage` from keys of an on-policy algorithm, in place. V-trace becomes A2C with this estimator.

    A section that lacks one of these keys is left unchanged; the check of the config reports the missing key later.
    """
    if section.get("name") in ESTIMATED and section.keys() >= {*GAE_KEYS}:
        regroup_gae(section)
    elif section.get("name") == "vtrace" and section.keys() >= {*VTRACE_KEYS}:
        regroup_vtrace(section)


def regroup_clip_range(algo: dict[str, Any]) -> None:
    """Replaces `clip_range_end` of PPO by a schedule, in place."""
    end = algo.pop("clip_range_end", None)
    if end is not None:
        algo["schedule"] = {"clip_range": {"linear": {"end": end}}}
    particle = algo.get("particle")
    if isinstance(particle, dict):
        end = particle.pop("clip_range_end", None)
        if end is not None:
            algo["schedule"] = {"particle": {"clip_range": {"linear": {"end": end}}}}


def regroup_gae(section: dict[str, Any]) -> None:
    """Creates the section `advantage` of A2C and PPO, in place."""
    old = {key: section.pop(key) for key in GAE_KEYS}
    section["advantage"] = {
        "name": "gae",
        "gae_lambda": old["gae_lambda"],
        "value_lambda": old["value_lambda"],
        "normalize": old["normalize_advantage"],
    }


def regroup_vtrace(section: dict[str, Any]) -> None:
    """Turns the algorithm V-trace into A2C with the estimator of this name, in place. V-trace ignored value_lambda."""
    old = {key: section.pop(key) for key in VTRACE_KEYS}
    section["name"] = "a2c"
    section["advantage"] = {
        "name": "vtrace",
        "gae_lambda": old["gae_lambda"],
        "rho_clip": old["rho_clip"],
        "c_clip": old["c_clip"],
        "normalize": old["normalize_advantage"],
    }


def restate(state: dict[str, Any]) -> None:
    """Changes the whole state, in place.

    Metrics of the last update are removed, because a resumed run takes means from there on. Measures of environments
    move into a module of their own. The posterior of neural linear is computed anew in the first update.
    """
    count = state.get("agent.regression.count")
    if count is not None and "agent.q.output.weight" in state:
        state.setdefault("agent.num_added", count.new_zeros(()).long())
    for path in list(state):
        if CLIP_RANGE.fullmatch(path):  # it follows from the schedule
            del state[path]
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
    move_successes(state)
    loop = state.get(LOOP)
    if isinstance(loop, dict) and "refill" in loop:
        kept = {name: value for name, value in loop.items() if name != "refill"}
        state[LOOP] = kept | {"emptied_at": 0, "paused_steps": 0}


def move_successes(state: dict[str, Any]) -> None:
    """Moves the successes of episodes into the episodes, in place."""
    loop, env = state.get(LOOP), state.get(ENV)
    if not isinstance(loop, dict) or "successes" not in loop:
        return
    kept = dict(loop)
    successes = kept.pop("successes")
    if len(successes) == len(kept["episodes"]):
        pairs = zip(kept["episodes"], successes, strict=True)
        kept["episodes"] = [(*episode, 0, False, float(success), None) for episode, success in pairs]
    state[LOOP] = kept
    if isinstance(env, dict) and "begun" in env:
        state[ENV] = env | {"reports_success": bool(successes)}


def stage_and_results(saved: Any) -> Any:
    """Returns the state of a scheduled parameter, stored as a list of its stage and the results of episodes."""
    if not isinstance(saved, list) or not saved:
        return saved
    return {"stage": saved[0], "results": saved[1:]}


def measures(stored: dict[str, tuple[float, int, float]]) -> dict[str, Any]:
    """Returns the state of measures, stored as recent sum, number of timesteps and total, without moving averages."""
    recent = {name: (total, count) for name, (total, count, _) in stored.items() if count}
    return {"recent": recent, "totals": {name: total for name, (_, _, total) in stored.items()}, "rows": []}
