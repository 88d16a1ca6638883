"""The groups of parts: what chooses a part on the command line, and the base class of a user's part."""

from typing import NamedTuple


class Kind(NamedTuple):
    """What a group of the registry holds.

    key: what is typed before the name of a part, or before a list of names. bases: a part that is a class is a subclass
    of one of these, `module:class`.
    """

    key: str
    bases: tuple[str, ...]


GROUPS = {
    "action_gradient": Kind("algo.action_gradient", ("rlrun.agents.actor_critic.action_gradients:ActionGradient",)),
    "actor": Kind("algo.actor", ("rlrun.networks.heads:Head",)),
    "advantage": Kind("algo.advantage", ("rlrun.agents.policy.advantages:AdvantageEstimator",)),
    "algo": Kind("algo", ("rlrun.core.agent:Agent",)),
    "buffer": Kind("algo.buffer", ("rlrun.buffers.replay:Replay", "rlrun.buffers.demos:Demos")),
    "callback": Kind("callbacks", ("rlrun.core.callback:Callback",)),
    "cluster": Kind("cluster", ("rlrun.shards.placement:Placement",)),
    "controller": Kind("algo.controller", ("rlrun.agents.scripted.controllers:Controller",)),
    "critic": Kind("algo.critic", ("rlrun.agents.critics.ensemble:Ensemble",)),
    "critic_update": Kind("algo.critic_update", ("rlrun.agents.policy.critic_updates:CriticUpdate",)),
    "decoder": Kind("algo.representation.model.decoder", ("rlrun.models.decoders:Decoder",)),
    "dynamics": Kind("algo.dynamics", ("rlrun.models.dynamics:Dynamics",)),
    "entropy": Kind("algo.entropy", ("rlrun.agents.entropy.coefficient:EntropyCoefficient",)),
    "entropy_reward": Kind("algo.entropy_reward", ("rlrun.agents.entropy.rewards:EntropyReward",)),
    "goals": Kind("algo.goals", ("rlrun.core.addon:Addon",)),
    "head": Kind("algo.head", ("rlrun.networks.heads:PolicyHead",)),
    "information": Kind("algo.representation.information", ("rlrun.models.mutual_information:MutualInformation",)),
    "intrinsic": Kind("algo.intrinsic", ("rlrun.addons.rewards.intrinsic.model:Intrinsic",)),
    "logger": Kind("logger", ("rlrun.telemetry.logger:Logger",)),
    "loop": Kind("algo.loop", ("rlrun.core.loop:Loop",)),
    "mixed_algo": Kind("algo", ("rlrun.core.agent:Agent",)),
    "model": Kind("algo.representation.model", ("rlrun.models.model:LearnedModel",)),
    "network": Kind("network", ("torch.nn:Module",)),
    "noise": Kind("algo.noise", ("rlrun.agents.noise.action_noise:ActionNoise",)),
    "norm": Kind("network.norm", ("rlrun.networks.norm:NoNorm",)),
    "planner": Kind("algo.planner", ("rlrun.models.planners:Planner",)),
    "prior": Kind("algo.prior", ("rlrun.agents.actor_critic.priors:Prior",)),
    "representation": Kind("algo.representation", ("rlrun.core.addon:Addon",)),
    "reward_model": Kind("algo.reward_model", ("rlrun.models.rewards:RewardModel",)),
    "reward_weights": Kind("algo.reward_weights", ("rlrun.core.addon:Addon",)),
    "search": Kind("algo.search", ("torch.nn:Module",)),
    "statistics": Kind("env.normalize.statistics", ("rlrun.core.statistics:Statistics",)),
    "trajectory": Kind("algo.trajectory", ("rlrun.agents.actor_critic.trajectories:Trajectory",)),
    "transform": Kind("env.transforms", ("rlrun.core.addon:Transform",)),
    "trust_region": Kind("algo.trust_region", ("rlrun.agents.policy.trust_regions:TrustRegion",)),
    "wrapper": Kind("env.wrappers", ("gymnasium:Wrapper",)),
}
