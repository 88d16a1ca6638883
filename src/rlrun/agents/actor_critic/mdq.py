"""Multi-dimensional Q-learning, MDQ, of the Agent Learning Framework (ALF), which names no paper.

Continuous actions are chosen one dimension after the other, each among a number of bins. The policy is therefore not
limited to one mode. Two networks predict values: `critic`, Q(s, a) of any action, learns from TD targets. `actor`, the
values of the bins from which actions are sampled, is distilled from the target network of `critic`.
"""

import math
from typing import Annotated

import torch
from gymnasium.spaces import Box, MultiDiscrete
from pydantic import Field
from torch import Tensor

from rlrun.agents.critics.ensemble import Critic
from rlrun.agents.critics.expected import ExpectedReturn
from rlrun.agents.entropy.coefficient import EntropyCoefficient, resolve_target_entropy
from rlrun.core.agent import Agent, kernel, policy
from rlrun.core.parts import Parts
from rlrun.core.state import Optim, Target
from rlrun.functional.losses import batch_mean, weighted_mean
from rlrun.nested import leaves
from rlrun.networks.autoregressive import AutoregressiveValues
from rlrun.settings import (
    NonNegativeFloat,
    NStepReturns,
    Part,
    PositiveFloat,
    PositiveFraction,
    PositiveInt,
    Scheduled,
    Units,
    config,
    register,
)
from rlrun.types import Batch, Context, Metrics, Obs, Spec


@register("algo", "mdq")
class MDQ(Agent):
    """Q-learning with a free-form critic and an autoregressive policy over bins of every action dimension."""

    actions = Box
    acts_with = ("actor", "entropy")
    explores_with = ("entropy",)
    needs_bounds = True

    @config
    class Config(NStepReturns):
        tau: PositiveFraction
        target_every: PositiveInt
        bins: Annotated[Units, Field(ge=2)]
        distill_noise: Scheduled[NonNegativeFloat]
        actor_learning_rate: Scheduled[PositiveFloat]
        critic_learning_rate: Scheduled[PositiveFloat]
        critic: Annotated[dict[str, object], Part("critic")]
        entropy: Annotated[dict[str, object], Part("entropy")]

    cfg: Config

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        dims = spec.action.shape[0]
        self.ensemble = parts.part("critic", cfg.critic, ExpectedReturn)
        self.critic = self.ensemble.network(parts)
        self.target_critic = Target(self.critic, cfg.tau)
        self.actor = AutoregressiveValues(parts.torso("actor", inputs=("obs", "action"), members=dims), dims, cfg.bins)
        entropy = resolve_target_entropy(cfg.entropy, MultiDiscrete([cfg.bins] * dims))
        self.entropy = parts.part("entropy", entropy, EntropyCoefficient, default_target_entropy(dims, cfg.bins))
        self.actor_optim = Optim(self.actor.parameters(), cfg.actor_learning_rate)
        self.critic_optim = Optim(self.critic.parameters(), cfg.critic_learning_rate)
        self.act_noise = parts.stream("act")
        self.update_noise = parts.stream("update")

    @policy
    def act(self, obs: Obs, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        batch = next(leaves(obs)).shape[0]  # not len(), which an export would make a constant
        if not explore:
            return self.actor.greedy(obs, batch), {}
        noise = self.act_noise.uniform(batch, self.actor.dims, self.actor.bins)
        action, _ = self.actor.sample(obs, self.entropy.temperature, noise)
        return action, {}

    def update(self, batch: Batch, ctx: Context) -> tuple[Metrics, Tensor]:
        next_noise = self.update_noise.uniform(*batch["action"].shape, self.cfg.bins)
        members = self.ensemble.draw_members(self.update_noise)
        metrics, priority = self.update_critic(batch, next_noise, members)
        noise = self.update_noise.normal(*batch["action"].shape)
        metrics |= self.update_actor(batch, noise)
        self.target_critic.track_every(self.cfg.target_every, ctx.updates + 1)
        return metrics, priority

    @kernel
    def update_critic(self, batch: Batch, noise: Tensor, members: Tensor | None = None) -> tuple[Metrics, Tensor]:
        """Returns metrics and priorities, [batch]. noise [batch, dims, bins]: uniform, for the next actions."""
        with torch.no_grad():
            target_q, divergence = self.target_q(batch, noise, self.target_critic.select(members))
        z = self.critic(batch["obs"], batch["action"])  # [members, batch, ...]
        critic_loss, metrics, priority = self.ensemble.regress(z, target_q, batch["weight"])
        self.critic_optim.step(critic_loss)
        entropy = self.actor.dims * math.log(self.cfg.bins) - divergence
        metrics["loss/entropy"] = batch_mean(entropy)
        return metrics | self.entropy.adjust(entropy, batch["weight"]), priority

    def target_q(self, batch: Batch, noise: Tensor, target_critic: Critic) -> tuple[Tensor, Tensor]:
        """Returns the target that stands for r + gamma (min_i Q_i(s', a') - alpha D), and the divergence D, [batch].

        D is the sum of KL(pi_k || uniform) over the dimensions of the action.
        """
        next_action, divergences = self.actor.sample(batch["next_obs"], self.entropy.temperature, noise)
        divergence = divergences.sum(-1)
        next_z = target_critic(batch["next_obs"], next_action)
        next_q = self.ensemble.target_return(next_z)
        discount = self.cfg.gamma ** batch["n_steps"] * (1 - batch["terminated"])
        cost = self.entropy.alpha * divergence
        target = self.ensemble.backup(next_q, batch["reward"], discount, cost)
        return target, divergence

    @kernel
    def update_actor(self, batch: Batch, noise: Tensor) -> Metrics:
        """Distils the target critics into the actor, at actions near the stored ones; noise [batch, dims]."""
        action = (batch["action"] + self.cfg.distill_noise * noise).clamp(-1, 1)
        with torch.no_grad():
            z = self.target_critic(batch["obs"], action)
            q = self.ensemble.actor_value(z)
        error = self.actor.value(batch["obs"], action, self.entropy.temperature) - q
        actor_loss = weighted_mean(error**2, batch["weight"])
        self.actor_optim.step(actor_loss)
        return {"loss/actor": actor_loss.detach()}

    def action_values(self, obs: Obs, action: Tensor) -> Tensor:
        z = self.critic(obs, action)
        return self.ensemble.value(z).mean(0)


def default_target_entropy(dims: int, bins: int) -> float:
    """Returns the entropy of bins that corresponds to SAC's default target, an entropy of -1 per dimension in [-1, 1].

    The entropy of a choice among bins of width 2 / bins exceeds that of the density by log(bins / 2). The result is at
    least 0, which matters with few bins.
    """
    return dims * max(0.0, math.log(bins / 2) - 1)
