"""Soft actor-critic with a learned temperature (Haarnoja et al. 2018, arXiv 1812.05905).

The target is the least of `members` critics, or of a random `target_members` of them as in REDQ (Chen et al. 2021,
arXiv 2101.05982), whose actor follows the mean of all and is updated every `policy_delay` critic updates.
"""

from typing import Any, Literal

import torch
from gymnasium.spaces import Box
from torch import Tensor, nn

from rlrun.config.schema import Fraction, PositiveFloat, PositiveFraction, PositiveInt, config
from rlrun.core.agent import Agent, kernel
from rlrun.core.state import Optim, Target
from rlrun.functional.distributions import SquashedNormal
from rlrun.functional.losses import ensemble_mse, weighted_mean
from rlrun.functional.returns import td_target
from rlrun.networks.heads import SquashedGaussianPolicy, Value
from rlrun.registry import register
from rlrun.types import Batch, Context, Metrics


@register("algo", "sac")
class SAC(Agent):
    actions = Box
    needs_bounds = True

    @config
    class Config:
        gamma: Fraction
        tau: PositiveFraction
        members: PositiveInt
        target_members: PositiveInt | None
        actor_value: Literal["min", "mean"]
        policy_delay: PositiveInt
        actor_learning_rate: PositiveFloat
        critic_learning_rate: PositiveFloat
        temperature_learning_rate: PositiveFloat
        temperature: PositiveFloat
        learn_temperature: bool
        target_entropy: float | None

    def __init__(self, cfg, spec, parts):
        super().__init__(cfg, spec, parts)
        actions = spec.action.shape[0]
        self.actor = SquashedGaussianPolicy(parts.torso(), actions)
        self.critic = Value(parts.torso(inputs=("obs", "action"), members=cfg.members), cfg.members)
        self.target_critic = Target(self.critic, cfg.tau)
        self.log_temperature = nn.Parameter(torch.tensor(cfg.temperature).log())
        self.target_entropy = -float(actions) if cfg.target_entropy is None else cfg.target_entropy
        self.actor_optim = Optim(self.actor.parameters(), cfg.actor_learning_rate)
        self.critic_optim = Optim(self.critic.parameters(), cfg.critic_learning_rate)
        self.temperature_optim = Optim([self.log_temperature], cfg.temperature_learning_rate)
        self.act_noise, self.update_noise = parts.stream("act"), parts.stream("update")

    @torch.no_grad()
    def act(self, obs: Any, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        dist = self.actor(obs)
        return (dist.sample(dist.noise(self.act_noise))[0] if explore else dist.mode()), {}

    def dist(self, obs: Any, carry: Batch) -> SquashedNormal:
        return self.actor(obs)

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        next_noise, noise = self.update_noise.normal(2, *batch["action"].shape)
        subset = self.cfg.target_members and self.update_noise.permutation(self.cfg.members)[: self.cfg.target_members]
        metrics = self.update_critic(batch, next_noise, subset)
        if (ctx.updates + 1) % self.cfg.policy_delay == 0:
            metrics |= self.update_actor(batch, noise)
        self.target_critic.track()
        return metrics

    @kernel
    def update_critic(self, batch: Batch, noise: Tensor, subset: Tensor | None = None) -> Metrics:
        with torch.no_grad():
            next_action, log_prob = self.actor(batch["next_obs"]).sample(noise)
            next_q = self.target_critic(batch["next_obs"], next_action)  # [members, batch]
            next_value = (next_q if subset is None else next_q[subset]).amin(0) - self.temperature * log_prob
            target = td_target(batch["reward"], batch["discount"], next_value)
        q = self.critic(batch["obs"], batch["action"])  # [members, batch]
        loss = ensemble_mse(q, target, batch["weight"])
        self.critic_optim.step(loss)
        return {"critic": loss.detach(), "q": q.detach().mean()}

    @kernel
    def update_actor(self, batch: Batch, noise: Tensor) -> Metrics:
        action, log_prob = self.actor(batch["obs"]).sample(noise)
        q = self.critic(batch["obs"], action)
        value = q.amin(0) if self.cfg.actor_value == "min" else q.mean(0)
        loss = weighted_mean(self.temperature * log_prob - value, batch["weight"])
        self.actor_optim.step(loss)
        metrics = {"actor": loss.detach(), "entropy": -log_prob.detach().mean(), "temperature": self.temperature}
        if self.cfg.learn_temperature:
            gap = weighted_mean(log_prob.detach() + self.target_entropy, batch["weight"])
            self.temperature_optim.step(-self.log_temperature * gap)
        return metrics

    @property
    def temperature(self) -> Tensor:
        """The entropy coefficient alpha, detached."""
        return self.log_temperature.detach().exp()
