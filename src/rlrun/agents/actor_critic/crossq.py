"""CrossQ (Bhatt et al. 2024, arXiv 1902.05605): SAC without target networks, with batch normalisation."""

from typing import Annotated

import torch
from gymnasium.spaces import Box
from torch import Tensor

from rlrun.agents.critics.ensemble import Ensemble
from rlrun.agents.entropy.coefficient import EntropyCoefficient, resolve_target_entropy
from rlrun.agents.noise.action_noise import ActionNoise
from rlrun.core.agent import Agent, kernel, policy
from rlrun.core.parts import Parts
from rlrun.core.state import Optim
from rlrun.functional.distributions import Distribution
from rlrun.functional.losses import batch_mean, sum_over_members, weighted_mean
from rlrun.networks.heads import SquashedGaussianPolicy
from rlrun.networks.norm import batch_statistics
from rlrun.settings import NStepReturns, OpenFraction, Part, PositiveFloat, PositiveInt, Scheduled, config, register
from rlrun.tensors import joined
from rlrun.types import Batch, Context, Metrics, Obs, Spec


@register("algo", "crossq")
class CrossQ(Agent):
    """Soft actor-critic whose networks are batch-normalised, and whose critics give the target values themselves."""

    actions = Box
    acts_with = ("actor", "noise")
    explores_with = ("entropy",)
    needs_bounds = True
    moves_statistics = True

    @config
    class Config(NStepReturns):
        policy_delay: PositiveInt
        learning_rate: Scheduled[PositiveFloat]
        beta1: OpenFraction
        critic: Annotated[dict[str, object], Part("critic")]
        entropy: Annotated[dict[str, object], Part("entropy")]
        noise: Annotated[dict[str, object], Part("noise")]

    cfg: Config

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        action_dim = spec.action.shape[0]
        self.ensemble = parts.part("critic", cfg.critic, Ensemble)
        self.actor = SquashedGaussianPolicy(parts.torso("actor"), action_dim)
        self.critic = self.ensemble.network(parts)
        entropy = resolve_target_entropy(cfg.entropy, spec.action)
        self.entropy = parts.part("entropy", entropy, EntropyCoefficient, -float(action_dim))

        betas = (cfg.beta1, 0.999)
        self.actor_optim = Optim(self.actor.parameters(), cfg.learning_rate, betas=betas)
        self.critic_optim = Optim(self.critic.parameters(), cfg.learning_rate, betas=betas)
        self.noise = parts.part("noise", cfg.noise, ActionNoise, spec)
        self.act_noise = parts.stream("act")
        self.update_noise = parts.stream("update")

    @policy
    def act(self, obs: Obs, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        dist = self.actor(obs)
        if not explore:
            return dist.mode(), {}
        action, _ = dist.sample(dist.noise(self.act_noise))
        return self.noise.add(action, carry, self.act_noise)

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        next_noise, noise = self.update_noise.normal(2, *batch["action"].shape)
        members = self.ensemble.draw_members(self.update_noise)
        metrics = self.update_critic(batch, next_noise, members)
        if (ctx.updates + 1) % self.cfg.policy_delay == 0:
            metrics |= self.update_actor(batch, noise)
        return metrics

    @kernel
    def update_critic(self, batch: Batch, noise: Tensor, members: Tensor | None = None) -> Metrics:
        with torch.no_grad():
            next_action, next_log_prob = self.actor(batch["next_obs"]).sample(noise)
        obs = joined([batch["obs"], batch["next_obs"]])
        action = torch.cat([batch["action"], next_action])
        with batch_statistics(self.critic):  # one forward pass, so the statistics cover both halves (eq. 4)
            z, next_z = self.critic(obs, action).chunk(2, 1)  # [members, batch, ...] each

        next_z = next_z.detach()
        if members is not None:
            next_z = next_z[members]
        next_q = self.ensemble.target_return(next_z)
        discount = self.cfg.gamma ** batch["n_steps"] * (1 - batch["terminated"])
        entropy_cost = self.entropy.alpha * next_log_prob  # target: reward + discount (next_q - cost)
        target_q = self.ensemble.backup(next_q, batch["reward"], discount, entropy_cost)
        losses, _ = self.ensemble.losses(z, target_q, batch["weight"])
        critic_loss = sum_over_members(losses, batch["weight"])
        self.critic_optim.step(critic_loss)
        q = self.ensemble.value(z.detach())
        return {"loss/critic": critic_loss.detach(), "loss/q": batch_mean(q)}

    @kernel
    def update_actor(self, batch: Batch, noise: Tensor) -> Metrics:
        with batch_statistics(self.actor):
            action, log_prob = self.actor(batch["obs"]).sample(noise)
        z = self.critic(batch["obs"], action)  # with running statistics, which this loss does not change
        q = self.ensemble.actor_value(z)
        actor_loss = weighted_mean(self.entropy.alpha * log_prob - q, batch["weight"])
        self.actor_optim.step(actor_loss)
        log_prob = log_prob.detach()
        metrics = {"loss/actor": actor_loss.detach(), "loss/entropy": -batch_mean(log_prob)}
        return metrics | self.entropy.adjust(-log_prob, batch["weight"])

    def action_values(self, obs: Obs, action: Tensor) -> Tensor:
        z = self.critic(obs, action)
        return self.ensemble.value(z).mean(0)

    def action_distribution(self, obs: Obs, carry: Batch) -> Distribution:
        dist: Distribution = self.actor(obs)
        return dist
