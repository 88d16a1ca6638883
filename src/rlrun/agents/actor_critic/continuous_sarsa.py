"""SARSA for continuous actions (Sutton and Barto 2018, sec. 6.4 and 7.2), with the actor of SAC or of DDPG.

    target = r_t + ... + gamma^(n-1) r_{t+n-1} + gamma^n min_i Q_i(s_{t+n}, a_{t+n})

a_{t+n} is the action that the trajectory took, not one that the current policy chooses. The critics therefore value the
policy that acts, exploration included. `algo.entropy_reward` may add the entropy, as in SAC. The agent learns from
replay or from rollouts.
"""

from typing import Annotated, Any

import torch
from gymnasium.spaces import Box
from torch import Tensor, nn

from rlrun.agents.actor_critic.sac import SAC
from rlrun.agents.critics.ensemble import Critic
from rlrun.buffers.consecutive import with_next_action
from rlrun.core.agent import policy
from rlrun.core.parts import Parts
from rlrun.core.state import Target
from rlrun.errors import ConfigError
from rlrun.settings import Part, PositiveFraction, config, register, registry
from rlrun.types import Batch, Context, Obs, Spec


@register("algo", "continuous_sarsa")
class ContinuousSARSA(SAC):
    """SAC with targets at the next action of the trajectory, and an averaged actor for exploration."""

    actions = Box  # of the parts `algo.actor`
    acts_with = ("actor", "explorer", "noise")
    remembers = False
    reward_discounts = False
    learns_from_rollouts = True

    @config
    class Config(SAC.Config):
        actor_tau: PositiveFraction
        actor: Annotated[dict[str, object], Part("actor")]

    cfg: Config

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        if self.num_next_steps:
            raise ConfigError("algo.entropy_reward=every_step: not supported by continuous_sarsa; choose bootstrap")
        self.sequence_length = cfg.n_step + 1
        self.explorer = Target(self.actor, cfg.actor_tau)

    def networks(self, parts: Parts) -> tuple[nn.Module, nn.Module, float]:
        """Returns the actor, the critics, and the default target entropy, minus the number of action dimensions."""
        dims = self.spec.action.shape[0]
        actor = registry.build("actor", self.cfg.actor, parts.torso("actor"), dims, path="algo.actor")
        return actor, self.ensemble.network(parts), -float(dims)

    @policy
    def act(self, obs: Obs, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        if not explore:
            return self.actor(obs).mode(), {}
        dist = self.explorer(obs)
        action, _ = dist.sample(dist.noise(self.act_noise))
        return self.noise.add(action, carry, self.act_noise)

    def update(self, batch: Batch, ctx: Context) -> Any:
        """Returns metrics and, for a batch from replay, priorities [batch]."""
        steps = with_next_action(batch, self.cfg.n_step, self.cfg.gamma)
        metrics, priority = super().update(steps, ctx)
        self.explorer.track()
        if "index" not in batch:  # a rollout
            return metrics
        return metrics, priority

    def target_q(self, batch: Batch, noise: Tensor, target_critic: Critic) -> Tensor:
        dist = self.actor(batch["next_obs"])
        policy_action, _ = dist.sample(noise)
        has_next_action = batch["has_next_action"].unsqueeze(-1) > 0
        next_action = torch.where(has_next_action, batch["next_action"], policy_action)
        next_z = target_critic(batch["next_obs"], next_action)
        next_q = self.ensemble.target_return(next_z, batch.get("reward_weights"))
        cost = self.entropy_reward.cost(dist.log_prob(next_action), batch["weight"], self.entropy)
        discount = self.cfg.gamma ** batch["n_steps"] * (1 - batch["terminated"])
        return self.ensemble.backup(next_q, batch["reward"], discount, cost)
