"""What changed from format 2 to 3: critics, entropy coefficients and A2C's critic update became parts of `algo`."""

import re
from typing import Any

from rlrun.config.renamed import Renamed

SAC = ("sac", "discrete_sac", "sac_cloning")
ON_POLICY = ("a2c", "ppo", "vtrace", "ppo_demos", "svpg")

KEYS = (
    Renamed("algo.target_tau", "algo.tau", ("dqn", "muzero")),
    Renamed("algo.returns", "algo.critic", ("dqn",)),
    Renamed("algo.initial_std", "algo.init_std", (*ON_POLICY, "variational_bandit")),
    Renamed("algo.particle.initial_std", "algo.particle.init_std", ("svpg",)),
)
METRICS = (
    Renamed("loss/q_loss", "loss/critic", ("dqn",)),
    Renamed("loss/value", "loss/critic", ON_POLICY),
    Renamed("loss/policy", "loss/actor", (*ON_POLICY, "maml")),
    Renamed("loss/temperature", "loss/alpha", SAC),
    Renamed("loss/entropy_target_alpha", "loss/alpha", ON_POLICY),
    Renamed("loss/entropy_target_gap", "loss/entropy_gap"),
    Renamed("loss/entropy_target_stage", "loss/entropy_stage"),
)
STATE = (
    Renamed("agent.epsilon", "agent.epsilon.value", ("dqn", "q_learning", "dyna_q", "expected_sarsa", "sarsa")),
    Renamed("agent.log_temperature", "agent.entropy.log_alpha", SAC),
    Renamed("agent.temperature_optim", "agent.entropy.optim", SAC),
    Renamed("agent.entropy_target", "agent.entropy"),
    Renamed("agent.learner.entropy_target", "agent.learner.entropy", ("ppo_demos",)),
    Renamed("agent.particles.*.entropy_target", "agent.particles.*.entropy", ("svpg",)),
    Renamed("agent.value.optim", "agent.critic.optim", ON_POLICY),
    Renamed("agent.value", "agent.critic.network", ON_POLICY),
    Renamed("agent.learner.value.optim", "agent.learner.critic.optim", ("ppo_demos",)),
    Renamed("agent.learner.value", "agent.learner.critic.network", ("ppo_demos",)),
    Renamed("agent.particles.*.value.optim", "agent.particles.*.critic.optim", ("svpg",)),
    Renamed("agent.particles.*.value", "agent.particles.*.critic.network", ("svpg",)),
)

# Running moments of add-ons: those of normalisers had two phases, those of intrinsic rewards one.
MOMENTS = re.compile(
    r"(?P<home>addons\.\d+\.(model\.(view\.(parts\.\w+\.)*)?)?)(?P<phase>moments|live|pending)\.(?P<leaf>mean|var|count)"
)


def restate(state: dict[str, Any]) -> None:
    """Gathers running moments in `statistics` with the phases `live` and `pending`. Nothing is pending if the state
    has one phase."""
    for path in list(state):
        found = MOMENTS.fullmatch(path)
        if found is None:
            continue
        value = state.pop(path)
        home, phase, leaf = found["home"], found["phase"], found["leaf"]
        if phase == "moments":
            fresh = value.new_ones if leaf == "var" else value.new_zeros
            state[f"{home}statistics.pending.{leaf}"] = fresh(value.shape)
            phase = "live"
        state[f"{home}statistics.{phase}.{leaf}"] = value


SAC_KEYS = (
    "members", "target_members", "actor_value", "temperature", "learn_temperature", "temperature_learning_rate",
    "target_entropy", "entropy_target",
)  # fmt: skip
CRITIC_UPDATE_KEYS = (
    "critic", "value_learning_rate", "value_epochs", "value_minibatch_size", "advantage_after_fit", "ent_coef",
    "entropy_target",
)  # fmt: skip


def regroup(values: dict[str, Any]) -> None:
    """Moves keys of `algo` that became settings of parts into the sections of these parts, in place. Also does so for
    `algo.particle` of SVPG.

    A section that lacks one of these keys is left unchanged; the check of the config reports the missing key later.
    """
    algo = values.get("algo")
    if not isinstance(algo, dict):
        return
    for section in (algo, algo.get("particle")):
        if not isinstance(section, dict):
            continue
        if section.get("name") in SAC and section.keys() >= {*SAC_KEYS}:
            regroup_sac(section)
        elif section.get("name") == "td3" and "members" in section:
            section["critic"] = {"name": "min", "members": section.pop("members")}
        elif section.get("name") in ON_POLICY and section.keys() >= {*CRITIC_UPDATE_KEYS}:
            regroup_on_policy(section)


def regroup_sac(section: dict[str, Any]) -> None:
    """Creates `algo.critic` and `algo.entropy` of SAC, in place.

    A fixed temperature becomes a learned one with learning rate 0, so that the state in earlier snapshots still fits.
    """
    old = {key: section.pop(key) for key in SAC_KEYS}
    section["critic"] = {"name": "min", "members": old["members"]}
    if old["target_members"] is not None or old["actor_value"] == "mean":
        target_members = old["target_members"] or old["members"]
        section["critic"] = {"name": "redq", "members": old["members"], "target_members": target_members}
    rate = old["temperature_learning_rate"] if old["learn_temperature"] else 0.0
    section["entropy"] = old["entropy_target"] or {
        "name": "auto",
        "initial_alpha": old["temperature"],
        "learning_rate": rate,
        "target_entropy": old["target_entropy"],
    }


def regroup_on_policy(section: dict[str, Any]) -> None:
    """Creates `algo.critic_update` and `algo.entropy` of A2C and of the algorithms derived from it, in place."""
    old = {key: section.pop(key) for key in CRITIC_UPDATE_KEYS}
    critic_update = {"name": old["critic"]}
    if old["critic"] in ("split", "first"):
        critic_update["learning_rate"] = old["value_learning_rate"]
    if old["critic"] == "first":
        critic_update["epochs"] = old["value_epochs"]
        critic_update["minibatch_size"] = old["value_minibatch_size"]
        critic_update["advantage_after_fit"] = old["advantage_after_fit"]
    section["critic_update"] = critic_update
    section["entropy"] = old["entropy_target"] or {"name": "fixed", "ent_coef": old["ent_coef"]}
