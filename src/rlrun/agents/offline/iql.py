"""Implicit Q-learning (Kostrikov et al. 2021, arXiv 2110.06169): Q-values are only computed for actions in the data.

V is an expectile of Q over the actions in the data, which approximates the maximum over these actions. The policy
clones actions with weights exp(advantage / temperature) (arXiv 1910.00177). Learns from data sets, from the
environment, or from both.

For reward vectors, Q and V have a column for each reward. The advantage is the weighted sum of those of the columns.
Its sign chooses the weight of the errors of every column, so the weighted sum of V is the expectile of that of Q.
"""

import torch
from gymnasium.spaces import Box
from torch import Tensor

from rlrun.agents.critics.expected import Minimum
from rlrun.agents.critics.reward_columns import with_reward_columns
from rlrun.core.agent import Agent, kernel, policy
from rlrun.core.parts import Parts
from rlrun.core.state import Optim, Target
from rlrun.functional.distributions import Distribution
from rlrun.functional.losses import (
    advantage_weight,
    batch_mean,
    cloning_error,
    ensemble_mse,
    expectile_weight,
    mean_over_columns,
    weighted_mean,
)
from rlrun.functional.priorities import mean_absolute
from rlrun.networks.heads import Value, stochastic_policy
from rlrun.settings import (
    NStepReturns,
    OpenFraction,
    PositiveFloat,
    PositiveFraction,
    Scheduled,
    Units,
    config,
    register,
)
from rlrun.types import Batch, Context, Metrics, Obs, Spec


@register("algo", "iql")
class IQL(Agent):
    """Implicit Q-learning with a Gaussian policy."""

    actions = Box
    acts_with = ("actor",)
    reward_vectors = True
    reward_discounts = True

    @config
    class Config(NStepReturns):
        tau: PositiveFraction
        members: Units
        expectile: OpenFraction
        temperature: PositiveFloat
        max_weight: PositiveFloat
        actor_learning_rate: Scheduled[PositiveFloat]
        critic_learning_rate: Scheduled[PositiveFloat]
        value_learning_rate: Scheduled[PositiveFloat]

    cfg: Config

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        self.actor = stochastic_policy(parts.torso("actor"), spec.action)
        minimum = Minimum.Config(members=cfg.members, target_members=None, normalize_target=False)
        self.ensemble = with_reward_columns(Minimum(minimum), spec)
        self.critic = self.ensemble.network(parts)
        self.target_critic = Target(self.critic, cfg.tau)
        self.value = Value(parts.torso("critic"), columns=spec.reward_dim)
        self.actor_optim = Optim(self.actor.parameters(), cfg.actor_learning_rate)
        self.critic_optim = Optim(self.critic.parameters(), cfg.critic_learning_rate)
        self.value_optim = Optim(self.value.parameters(), cfg.value_learning_rate)
        self.act_noise = parts.stream("act")

    @policy
    def act(self, obs: Obs, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        dist = self.actor(obs)
        if not explore:
            return dist.mode(), {}
        return dist.sample(dist.noise(self.act_noise)), {}

    def update(self, batch: Batch, ctx: Context) -> tuple[Metrics, Tensor]:
        metrics, advantage = self.update_value(batch)
        metrics |= self.update_actor(batch, advantage)
        critic_metrics, priority = self.update_critic(batch)
        self.target_critic.track()
        return metrics | critic_metrics, priority

    @kernel
    def update_value(self, batch: Batch) -> tuple[Metrics, Tensor]:
        """Returns metrics and the advantages of the stored actions, [batch]."""
        weights = batch.get("reward_weights")
        with torch.no_grad():
            z = self.target_critic(batch["obs"], batch["action"])
            target_q = self.ensemble.target_return(z, weights)
        error = target_q - self.value(batch["obs"])  # [batch] or [batch, columns]
        advantage = self.ensemble.total(error.detach(), weights)
        losses = expectile_weight(advantage, self.cfg.expectile) * mean_over_columns(error**2)
        loss = weighted_mean(losses, batch["weight"])
        self.value_optim.step(loss)
        return {"loss/value": loss.detach(), "loss/advantage": batch_mean(advantage)}, advantage

    @kernel
    def update_actor(self, batch: Batch, advantage: Tensor) -> Metrics:
        advantage_weights = advantage_weight(advantage, self.cfg.temperature, self.cfg.max_weight)
        error = cloning_error(self.actor(batch["obs"]), batch["action"])
        loss = weighted_mean(advantage_weights * error, batch["weight"])
        self.actor_optim.step(loss)
        return {"loss/actor": loss.detach()}

    @kernel
    def update_critic(self, batch: Batch) -> tuple[Metrics, Tensor]:
        """Returns metrics and absolute TD errors, [batch], as priorities."""
        with torch.no_grad():
            discount = self.ensemble.discount(self.cfg.gamma, batch)  # gamma^n (1 - terminated)
            target = self.ensemble.backup(self.value(batch["next_obs"]), batch["reward"], discount)
        q = self.critic(batch["obs"], batch["action"])  # [members, batch] or [members, batch, columns]
        loss = ensemble_mse(q, target, batch["weight"])
        self.critic_optim.step(loss)
        q = q.detach()
        td_error = mean_absolute(q - target)
        return {"loss/critic": loss.detach(), "loss/q": batch_mean(q)}, td_error

    def state_values(self, obs: Obs) -> Tensor:
        value: Tensor = self.value(obs)
        return value

    def action_values(self, obs: Obs, action: Tensor) -> Tensor:
        q: Tensor = self.critic(obs, action)
        return q.mean(0)

    def action_distribution(self, obs: Obs, carry: Batch) -> Distribution:
        dist: Distribution = self.actor(obs)
        return dist
