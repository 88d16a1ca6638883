"""Soft actor-critic (Haarnoja et al. 2018, arXiv 1812.05905)."""

from typing import Annotated, Any, ClassVar

import torch
from gymnasium.spaces import Box
from torch import Tensor, nn

from rlrun.agents.actor_critic.action_gradients import ActionGradient
from rlrun.agents.actor_critic.entropy_rewards import EntropyReward
from rlrun.agents.critics.ensemble import Critic, Ensemble, Reduce
from rlrun.agents.entropy.components import entropy_coefficient
from rlrun.agents.noise.action_noise import ActionNoise
from rlrun.core.agent import Agent, kernel, policy
from rlrun.core.parts import Parts
from rlrun.core.state import Optim, Target
from rlrun.functional.distributions import Source
from rlrun.functional.losses import batch_mean, ensemble_mean, weighted_mean
from rlrun.functional.priorities import of_ensemble
from rlrun.networks.heads import SquashedGaussianPolicy, Value
from rlrun.settings import NStepReturns, Part, PositiveFloat, PositiveFraction, PositiveInt, Scheduled, config, register
from rlrun.types import Batch, Context, Metrics, Spec


@register("algo", "sac")
class SAC(Agent):
    """Soft actor-critic with a squashed Gaussian policy and an ensemble of critics.

    Variants override single methods: `networks` and `evaluate` for other actions, `act` for other exploration,
    `target_q`, `actor_q` and `actor_loss` for other objectives.
    """

    actions = Box
    acts_with = ("actor", "noise")
    explores_with = ("entropy",)
    needs_bounds = True
    remembers = True
    critics: ClassVar[type[Ensemble]] = Ensemble  # kinds of `algo.critic` that this algorithm supports
    cfg: "Config"

    @config
    class Config(NStepReturns):
        tau: PositiveFraction
        target_every: PositiveInt
        policy_delay: PositiveInt
        actor_learning_rate: Scheduled[PositiveFloat]
        critic_learning_rate: Scheduled[PositiveFloat]
        lr_schedule: dict[str, Any]
        max_grad_norm: PositiveFloat | None
        critic: Annotated[dict[str, Any], Part("critic")]
        entropy: Annotated[dict[str, Any], Part("entropy")]
        entropy_reward: Annotated[dict[str, Any], Part("entropy_reward")]
        action_gradient: Annotated[dict[str, Any], Part("action_gradient")]
        noise: Annotated[dict[str, Any], Part("noise")]

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        self.ensemble = parts.part("critic", cfg.critic, self.critics)
        self.actor, self.critic, target_entropy = self.networks(parts)
        self.target_critic = Target(self.critic, cfg.tau)
        self.entropy = entropy_coefficient(parts, cfg.entropy, spec.action, target_entropy)
        options: Any = {"schedule": cfg.lr_schedule, "max_grad_norm": cfg.max_grad_norm}
        self.actor_optim = Optim(self.actor.parameters(), cfg.actor_learning_rate, **options)
        self.critic_optim = Optim(self.critic.parameters(), cfg.critic_learning_rate, **options)
        self.entropy_reward = parts.part(
            "entropy_reward", cfg.entropy_reward, EntropyReward, spec, cfg.n_step, cfg.gamma
        )
        self.num_next_steps = self.entropy_reward.num_next_steps
        self.action_gradient = parts.part("action_gradient", cfg.action_gradient, ActionGradient, spec)
        self.noise = parts.part("noise", cfg.noise, ActionNoise, spec)
        self.act_noise = parts.stream("act")
        self.update_noise = parts.stream("update")

    def networks(self, parts: Parts, columns: int = 1) -> tuple[nn.Module, nn.Module, Any]:
        """Returns the actor, the critics, and the default target entropy: minus the number of action dimensions (arXiv
        1812.05905, appendix D).

        columns: number of reward columns of the critics.
        """
        dims = self.spec.action.shape[0]
        actor = SquashedGaussianPolicy(parts.torso("actor"), dims)
        torso = parts.torso("critic", inputs=("obs", "action"), members=self.ensemble.members)
        critic = Value(torso, self.ensemble.members, columns=columns, shape=self.ensemble.shape)
        return actor, critic, -float(dims)

    @policy
    def act(self, obs: Any, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        dist = self.actor(obs)
        if not explore:
            return dist.mode(), {}
        action, _ = dist.sample(dist.noise(self.act_noise))
        return self.noise.add(action, carry, self.act_noise)

    def update(self, batch: Batch, ctx: Context) -> tuple[Metrics, Tensor]:
        self.actor_optim.tick(ctx.progress)
        self.critic_optim.tick(ctx.progress)
        next_noise, noise = self.update_noise.normal(2, *batch["action"].shape)
        batch = self.entropy_reward.within(batch, self.log_prob, self.entropy.alpha, self.update_noise)
        metrics, priority = self.update_critic(batch, next_noise, self.ensemble.draw(self.update_noise))
        if (ctx.updates + 1) % self.cfg.policy_delay == 0:
            metrics |= self.update_actor(batch, noise)
        self.target_critic.track_every(self.cfg.target_every, ctx.updates + 1)
        return metrics, priority

    @kernel
    def update_critic(self, batch: Batch, noise: Tensor, members: Tensor | None = None) -> tuple[Metrics, Tensor]:
        """Returns metrics and priorities, [batch].

        noise [batch, actions]: of the next actions. members: indices of the critics that compute the target.
        """
        with torch.no_grad():
            target_q = self.target_q(batch, noise, self.target_critic.select(members))
        z = self.stored_values(batch)  # [members, batch, ...]
        losses, errors = self.ensemble.loss(z, target_q)
        critic_loss = ensemble_mean(losses, batch["weight"])
        self.critic_optim.step(critic_loss)
        q = self.ensemble.value(z.detach())
        return {"loss/critic": critic_loss.detach(), "loss/q": batch_mean(q)}, of_ensemble(errors.detach())

    def stored_values(self, batch: Batch) -> Tensor:
        """Returns the predictions for the stored actions, [members, batch, ...]."""
        z: Tensor = self.critic(batch["obs"], batch["action"])
        return z

    def target_q(self, batch: Batch, noise: Tensor, target_critic: Critic) -> Tensor:
        """Returns the target that stands for reward + gamma^n (Q' - alpha log pi')."""
        next_q, next_log_prob = self.evaluate(batch["next_obs"], target_critic, self.ensemble.target, noise)
        discount = self.cfg.gamma ** batch["n_steps"] * (1 - batch["terminated"])  # n_steps rewards are summed
        cost = self.entropy.cost(self.entropy_reward.cost(next_log_prob, batch["weight"]))
        return self.ensemble.backup(next_q, batch["reward"], discount, cost)

    def log_prob(self, obs: Any, source: Source) -> Tensor:
        """Returns the log-probabilities of sampled actions, [batch]."""
        dist = self.actor(obs)
        _, log_prob = dist.sample(dist.noise(source))
        return log_prob  # type: ignore[no-any-return]

    @kernel
    def update_actor(self, batch: Batch, noise: Tensor) -> Metrics:
        q, log_prob = self.actor_q(batch, noise)
        # the optimiser computes the gradients of the actor's weights only, so the critics do not change
        actor_loss = weighted_mean(self.actor_loss(batch, q, log_prob), batch["weight"])
        self.actor_optim.step(actor_loss)
        metrics = {"loss/actor": actor_loss.detach(), "loss/entropy": -batch_mean(log_prob.detach())}
        return metrics | self.entropy.adjust(-log_prob.detach(), batch["weight"])

    def actor_q(self, batch: Batch, noise: Tensor) -> tuple[Tensor, Tensor]:
        return self.evaluate(batch["obs"], self.critic, self.ensemble.actor, noise)

    def actor_loss(self, batch: Batch, q: Tensor, log_prob: Tensor) -> Tensor:
        """Returns alpha log pi - Q, [batch]. Variants use the batch."""
        return self.entropy.cost(log_prob) - q

    def evaluate(self, obs: Any, critic: Critic, reduce: Reduce, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the Q-value of a sampled action, reduced over the members, and its log-probability; both [batch].

        If the critics predict distributions, `reduce` may return one in place of the Q-value, [batch, n].
        """
        action, log_prob = self.actor(obs).sample(noise)
        q = reduce(critic(obs, action))
        return self.action_gradient.follow(q, action), log_prob
