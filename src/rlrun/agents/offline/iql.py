"""Implicit Q-learning (Kostrikov et al. 2021, arXiv 2110.06169): no action is ever valued that was not taken.

V is an expectile of Q over the actions of the data, which comes near to the best of them; the policy clones actions by
how much better they are (arXiv 1910.00177). It learns from data sets, from the environment, or from both.
"""

from typing import Annotated, Any

import torch
from gymnasium.spaces import Box
from pydantic import Field
from torch import Tensor

from rlrun.config.schema import Fraction, PositiveFloat, PositiveFraction, PositiveInt, config
from rlrun.core.agent import Agent, kernel, policy
from rlrun.core.state import Optim, Target
from rlrun.functional.losses import advantage_weight, cloning_error, ensemble_mse, expectile_error, weighted_mean
from rlrun.functional.returns import td_target
from rlrun.networks.heads import Value, stochastic_policy
from rlrun.registry import register
from rlrun.types import Batch, Context, Metrics


@register("algo", "iql")
class IQL(Agent):
    actions = Box

    @config
    class Config:
        gamma: Fraction
        n_step: PositiveInt
        tau: PositiveFraction
        members: PositiveInt
        expectile: Annotated[float, Field(gt=0, lt=1)]
        temperature: PositiveFloat
        max_weight: PositiveFloat
        actor_learning_rate: PositiveFloat
        critic_learning_rate: PositiveFloat
        value_learning_rate: PositiveFloat
        lr_schedule: dict[str, Any]

    def __init__(self, cfg, spec, parts):
        super().__init__(cfg, spec, parts)
        self.actor = stochastic_policy(parts.torso(), spec.action)
        self.critic = Value(parts.torso(inputs=("obs", "action"), members=cfg.members), cfg.members)
        self.target_critic = Target(self.critic, cfg.tau)
        self.value = Value(parts.torso())
        self.actor_optim = Optim(self.actor.parameters(), cfg.actor_learning_rate, schedule=cfg.lr_schedule)
        self.critic_optim = Optim(self.critic.parameters(), cfg.critic_learning_rate)
        self.value_optim = Optim(self.value.parameters(), cfg.value_learning_rate)
        self.act_noise = parts.stream("act")

    @policy
    def act(self, obs: Any, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        dist = self.actor(obs)
        return (dist.sample(dist.noise(self.act_noise)) if explore else dist.mode()), {}

    def dist(self, obs: Any, carry: Batch) -> Any:
        return self.actor(obs)

    def update(self, batch: Batch, ctx: Context) -> tuple[Metrics, Tensor]:
        self.actor_optim.tick(ctx.progress)
        metrics, priority = self.update_all(batch)
        self.target_critic.track()
        return metrics, priority

    @kernel
    def update_all(self, batch: Batch) -> tuple[Metrics, Tensor]:
        """Three losses of the networks as they are, then a step along each."""
        cfg, obs, action, weight = self.cfg, batch["obs"], batch["action"], batch["weight"]
        with torch.no_grad():
            target_q = self.target_critic(obs, action).amin(0)
            target = td_target(batch["reward"], batch["discount"], self.value(batch["next_obs"]))
        advantage = target_q - self.value(obs)
        value_loss = weighted_mean(expectile_error(advantage, cfg.expectile), weight)
        q = self.critic(obs, action)  # [members, batch]
        critic_loss = ensemble_mse(q, target, weight)
        share = advantage_weight(advantage, cfg.temperature, cfg.max_weight)
        actor_loss = weighted_mean(share * cloning_error(self.actor(obs), action), weight)
        self.value_optim.step(value_loss)
        self.critic_optim.step(critic_loss)
        self.actor_optim.step(actor_loss)
        metrics = {"value": value_loss, "critic": critic_loss, "actor": actor_loss, "advantage": advantage.mean()}
        metrics = {name: value.detach() for name, value in metrics.items()} | {"q": q.detach().mean()}
        return metrics, (q.detach() - target).abs().mean(0)
