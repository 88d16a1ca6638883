"""Soft actor-critic (Haarnoja et al. 2018, arXiv 1812.05905)."""

from typing import Annotated, Any

from torch import Tensor, nn

from rlrun.agents.actor_critic.actor_critic import ActorCritic
from rlrun.agents.critics.ensemble import Critic, QFunction, q_function
from rlrun.agents.entropy.coefficient import minus_dimensions
from rlrun.agents.entropy.components import default_targets, entropy_coefficient
from rlrun.agents.entropy.rewards import EntropyReward
from rlrun.core.agent import kernel, policy
from rlrun.core.parts import Parts
from rlrun.core.state import Optim, Target
from rlrun.functional.distributions import Distribution
from rlrun.functional.losses import batch_mean, weighted_mean
from rlrun.networks.heads import SquashedGaussianPolicy
from rlrun.settings import Part, PositiveFloat, PositiveInt, config, register
from rlrun.types import Batch, Context, Metrics, Obs, Spec


@register("algo", "sac")
class SAC(ActorCritic):
    """Soft actor-critic with a squashed Gaussian policy and an ensemble of critics.

    Variants override single methods: `networks` and `evaluate` for other actions, `act` for other exploration,
    `target_q`, `actor_q` and `actor_loss` for other objectives.
    """

    explores_with = ("entropy",)
    entropy_column = True
    cfg: "Config"

    @config
    class Config(ActorCritic.Config):
        target_every: PositiveInt
        max_grad_norm: PositiveFloat | None
        entropy: Annotated[dict[str, object], Part("entropy")]
        entropy_reward: Annotated[dict[str, object], Part("entropy_reward")]

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        self.actor, self.critic, target_entropy = self.networks(parts)
        self.target_critic = Target(self.critic, cfg.tau)
        self.entropy = entropy_coefficient(parts, cfg.entropy, spec.action, target_entropy)
        self.entropy_reward = parts.part("entropy_reward", cfg.entropy_reward, EntropyReward, spec, cfg)
        self.num_next_steps = self.entropy_reward.num_next_steps
        max_grad_norm = cfg.max_grad_norm
        self.actor_optim = Optim(self.actor.parameters(), cfg.actor_learning_rate, max_grad_norm=max_grad_norm)
        self.critic_optim = Optim(self.critic.parameters(), cfg.critic_learning_rate, max_grad_norm=max_grad_norm)

    def networks(self, parts: Parts) -> tuple[nn.Module, nn.Module, Any]:
        """Returns the actor, the critics, and the default target entropy: minus the number of action dimensions (arXiv
        1812.05905, appendix D)."""
        space = self.spec.action
        actor = SquashedGaussianPolicy(parts.torso("actor"), space.shape[0])
        return actor, self.ensemble.network(parts), default_targets(space, self.cfg.entropy, minus_dimensions)

    @policy
    def act(self, obs: Obs, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        dist = self.actor(obs)
        if not explore:
            return dist.mode(), {}
        action, _ = dist.sample(dist.noise(self.act_noise))
        return self.noise.add(action, carry, self.act_noise)

    def update(self, batch: Batch, ctx: Context) -> tuple[Metrics, Tensor]:
        next_noise, noise = self.update_noise.normal(2, *batch["action"].shape)
        batch = self.entropy_reward.within(batch, self.actor, self.entropy.alpha, self.update_noise)
        members = self.ensemble.draw_members(self.update_noise)
        metrics, priority = self.update_critic(batch, next_noise, members)
        if (ctx.updates + 1) % self.cfg.policy_delay == 0:
            metrics |= self.update_actor(batch, noise)
        self.target_critic.track_every(self.cfg.target_every, ctx.updates + 1)
        return metrics, priority

    def target_q(self, batch: Batch, noise: Tensor, target_critic: Critic) -> Tensor:
        """Returns the target that stands for reward + gamma^n (Q' - alpha log pi')."""
        q = q_function(target_critic, self.ensemble.target_return, batch)
        next_q, next_log_prob = self.evaluate(batch["next_obs"], q, noise)
        discount = self.ensemble.discount(self.cfg.gamma, batch)  # gamma^n (1 - terminated)
        cost = self.entropy_reward.cost(next_log_prob, batch["weight"], self.entropy)
        return self.ensemble.backup(next_q, batch["reward"], discount, cost)

    @kernel
    def update_actor(self, batch: Batch, noise: Tensor) -> Metrics:
        q, log_prob = self.actor_q(batch, noise)
        losses = self.actor_loss(batch, q, log_prob)
        actor_loss = weighted_mean(losses, batch["weight"])
        # the optimiser computes the gradients of the actor's weights only, so the critics do not change
        self.actor_optim.step(actor_loss)
        log_prob = log_prob.detach()
        metrics = {"loss/actor": actor_loss.detach(), "loss/entropy": -batch_mean(log_prob)}
        return metrics | self.entropy.adjust(-log_prob, batch["weight"])

    def actor_q(self, batch: Batch, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the Q-value that the actor maximises and log pi of a sampled action, both [batch]."""
        q = q_function(self.critic, self.ensemble.actor_value, batch)
        return self.evaluate(batch["obs"], self.action_gradient.wrap(q), noise)

    def actor_loss(self, batch: Batch, q: Tensor, log_prob: Tensor) -> Tensor:
        """Returns alpha log pi - Q, [batch]. Variants use the batch."""
        return self.entropy.cost(log_prob) - q

    def evaluate(self, obs: Obs, q: QFunction, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the Q-value of a sampled action, [batch], and its log-probability, [batch] or [batch, components].

        If the critics predict distributions, q may return one in place of the Q-value, [batch, n].
        """
        action, log_prob = self.entropy.sample(self.actor(obs), noise)
        return q(obs, action), log_prob

    def action_distribution(self, obs: Obs, carry: Batch) -> Distribution | None:
        dist: Distribution = self.actor(obs)
        return dist
