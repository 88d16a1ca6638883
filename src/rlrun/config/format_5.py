"""What changed from format 4 to 5: the estimator of advantages became a part of on-policy algorithms.

V-trace, which was an algorithm, became an estimator of A2C.
"""

from typing import Any

from rlrun.config.renamed import Renamed

ESTIMATED = ("a2c", "ppo", "ppo_demos")
STATE = (
    Renamed("agent.moments", "agent.advantage.moments", (*ESTIMATED, "vtrace")),
    Renamed("agent.learner.moments", "agent.learner.advantage.moments", ("ppo_demos",)),
    Renamed("agent.particles.*.moments", "agent.particles.*.advantage.moments", ("svpg",)),
)
GAE_KEYS = ("gae_lambda", "value_lambda", "normalize_advantage")
VTRACE_KEYS = (*GAE_KEYS, "rho_clip", "c_clip")


def regroup(values: dict[str, Any]) -> None:
    """Creates `algo.advantage` from keys of `algo`, in place. Also does so for `algo.particle` of SVPG.

    A section that lacks one of these keys is left unchanged; the check of the config reports the missing key later.
    """
    algo = values.get("algo")
    if not isinstance(algo, dict):
        return
    for section in (algo, algo.get("particle")):
        if not isinstance(section, dict):
            continue
        if section.get("name") in ESTIMATED and section.keys() >= {*GAE_KEYS}:
            regroup_gae(section)
        elif section.get("name") == "vtrace" and section.keys() >= {*VTRACE_KEYS}:
            regroup_vtrace(section)


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
