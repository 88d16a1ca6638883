"""Twin delayed deep deterministic policy gradient (Fujimoto et al. 2018, arXiv 1802.09477).

With a single critic, policy_delay=1 and target_noise=0 this is DDPG (Lillicrap et al. 2015, arXiv 1509.02971).
DDPG's Ornstein-Uhlenbeck exploration is available as noise=ou.
"""

from torch import Tensor

from rlrun.agents.actor_critic.actor_critic import ActorCritic
from rlrun.agents.critics.ensemble import Critic
from rlrun.core.agent import kernel, policy
from rlrun.core.parts import Parts
from rlrun.core.state import Optim, Target
from rlrun.functional.losses import weighted_mean
from rlrun.networks.heads import DeterministicPolicy
from rlrun.settings import NonNegativeFloat, PositiveInt, Scheduled, config, register
from rlrun.types import Batch, Context, Metrics, Obs, Spec


@register("algo", "td3")
class TD3(ActorCritic):
    """Deterministic policy gradient with clipped double Q-learning, delayed policy updates and target smoothing."""

    @config
    class Config(ActorCritic.Config):
        target_every: PositiveInt | None
        target_noise: Scheduled[NonNegativeFloat]
        target_noise_clip: Scheduled[NonNegativeFloat]

    cfg: Config

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        self.actor = DeterministicPolicy(parts.torso("actor"), spec.action.shape[0])
        self.critic = self.ensemble.network(parts)
        self.target_every = cfg.target_every or cfg.policy_delay
        self.target_actor = Target(self.actor, cfg.tau)
        self.target_critic = Target(self.critic, cfg.tau)
        self.actor_optim = Optim(self.actor.parameters(), cfg.actor_learning_rate)
        self.critic_optim = Optim(self.critic.parameters(), cfg.critic_learning_rate)

    @policy
    def act(self, obs: Obs, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        action = self.actor(obs)
        if not explore:
            return action, {}
        return self.noise.add(action, carry, self.act_noise)

    def update(self, batch: Batch, ctx: Context) -> tuple[Metrics, Tensor]:
        noise = self.update_noise.normal(*batch["action"].shape)
        members = self.ensemble.draw_members(self.update_noise)
        metrics, priority = self.update_critic(batch, noise, members)
        if (ctx.updates + 1) % self.cfg.policy_delay == 0:
            metrics |= self.update_actor(batch)
        if (ctx.updates + 1) % self.target_every == 0:
            self.target_actor.track()
            self.target_critic.track()
        return metrics, priority

    def target_q(self, batch: Batch, noise: Tensor, target_critic: Critic) -> Tensor:
        next_action = self.next_action(batch, noise)
        next_z = target_critic(batch["next_obs"], next_action)
        next_q = self.ensemble.target_return(next_z, batch.get("reward_weights"))
        discount = self.ensemble.discount(self.cfg.gamma, batch)  # gamma^n (1 - terminated)
        return self.ensemble.backup(next_q, batch["reward"], discount)

    def next_action(self, batch: Batch, noise: Tensor) -> Tensor:
        """Returns the target policy's action plus clipped noise: target policy smoothing (eq. 14)."""
        action = self.target_actor(batch["next_obs"])
        limit = self.cfg.target_noise_clip
        clipped_noise = (self.cfg.target_noise * noise).clamp(-limit, limit)
        return (action + clipped_noise).clamp(-1, 1)

    @kernel
    def update_actor(self, batch: Batch) -> Metrics:
        action = self.actor(batch["obs"])
        q = self.actor_q(batch, action)
        q = self.action_gradient.follow(q, action)
        actor_loss = -weighted_mean(q, batch["weight"])
        self.actor_optim.step(actor_loss)
        return {"loss/actor": actor_loss.detach()}

    def actor_q(self, batch: Batch, action: Tensor) -> Tensor:
        """Returns the first critic's value of the actor's action, [batch]."""
        z = self.critic.select(slice(1), batch["obs"], action)
        value = self.ensemble.value(z)[0]
        return self.ensemble.total(value, batch.get("reward_weights"))
