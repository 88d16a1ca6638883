"""Soft actor-critic with a learned temperature (Haarnoja et al. 2018, arXiv 1812.05905).

The target is the least of `members` critics, or of a random `target_members` of them as in REDQ (Chen et al. 2021,
arXiv 2101.05982), whose actor follows the mean of all and is updated every `policy_delay` critic updates.

Of a reward vector every component has a value of its own, and so has the entropy; the actor weighs them.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from gymnasium.spaces import Box
from torch import Tensor, nn

from rlrun.agents.actor_critic.columns import Join, columned, in_last, signed, total
from rlrun.agents.entropy.target import entropy_target
from rlrun.config.schema import NStepReturns, PositiveFloat, PositiveFraction, PositiveInt, Units, config
from rlrun.core.agent import Agent, kernel, policy
from rlrun.core.state import Optim, Target
from rlrun.functional.distributions import SquashedNormal
from rlrun.functional.losses import average, ensemble_mse, weighted_mean
from rlrun.networks.heads import SquashedGaussianPolicy, Value
from rlrun.registry import register
from rlrun.types import Batch, Context, Metrics

JOINS: dict[str, Join] = {"min": lambda q: q.amin(0), "mean": lambda q: q.mean(0)}


@register("algo", "sac")
class SAC(Agent):
    actions = Box
    needs_bounds = True
    reward_vectors = True
    remembers = True

    @config
    class Config(NStepReturns):
        tau: PositiveFraction
        target_every: PositiveInt
        members: Units
        target_members: Units | None
        actor_value: Literal["min", "mean"]
        policy_delay: PositiveInt
        actor_learning_rate: PositiveFloat
        critic_learning_rate: PositiveFloat
        temperature_learning_rate: PositiveFloat
        lr_schedule: dict[str, Any]
        max_grad_norm: PositiveFloat | None
        temperature: PositiveFloat
        learn_temperature: bool
        target_entropy: float | None
        entropy_target: dict[str, Any] | None

    def __init__(self, cfg, spec, parts):
        super().__init__(cfg, spec, parts)
        self.columns = 1 if spec.reward_dim == 1 else spec.reward_dim + 1  # the last: of the entropy
        self.actor, self.critic, target_entropy = self.networks(parts)
        self.target_critic = Target(self.critic, cfg.tau)
        self.target_entropy = target_entropy if cfg.target_entropy is None else cfg.target_entropy
        fixed = None if cfg.learn_temperature else "algo.learn_temperature=false: must be true"
        self.entropy_target = entropy_target(cfg.entropy_target, self.target_entropy, fixed)
        options: Any = {"schedule": cfg.lr_schedule, "max_grad_norm": cfg.max_grad_norm}
        self.actor_optim = Optim(self.actor.parameters(), cfg.actor_learning_rate, **options)
        self.critic_optim = Optim(self.critic.parameters(), cfg.critic_learning_rate, **options)
        if self.entropy_target is None:
            temperature = torch.tensor(cfg.temperature)
            self.log_temperature = nn.Parameter(temperature.log(), requires_grad=cfg.learn_temperature)
            self.temperature_optim = Optim([self.log_temperature], cfg.temperature_learning_rate)
        self.act_noise, self.update_noise = parts.stream("act"), parts.stream("update")

    def networks(self, parts: Any) -> tuple[nn.Module, nn.Module, float]:
        """Actor, critics, and the target entropy where none is given."""
        actions, members = self.spec.action.shape[0], self.cfg.members
        actor = SquashedGaussianPolicy(parts.torso("actor"), actions)
        torso = parts.torso("critic", inputs=("obs", "action"), members=members)
        critic = Value(torso, members, columns=self.columns)
        return actor, critic, -float(actions)

    @policy
    def act(self, obs: Any, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        obs, extras = self.memory.advanced(obs)
        dist = self.actor(obs)
        return (dist.sample(dist.noise(self.act_noise))[0] if explore else dist.mode()), extras

    def dist(self, obs: Any, carry: Batch) -> SquashedNormal:
        return self.actor(obs)

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        for optim in (self.actor_optim, self.critic_optim):
            optim.tick(ctx.progress)
        batch = columned(batch, extra=1)
        next_noise, noise = self.update_noise.normal(2, *batch["action"].shape)
        subset = self.cfg.target_members and self.update_noise.permutation(self.cfg.members)[: self.cfg.target_members]
        metrics = self.update_critic(batch, next_noise, subset)
        if (ctx.updates + 1) % self.cfg.policy_delay == 0:
            metrics |= self.update_actor(batch, noise)
        self.target_critic.track_every(self.cfg.target_every, ctx.updates + 1)
        return metrics

    @kernel
    def update_critic(self, batch: Batch, noise: Tensor, subset: Tensor | None = None) -> Metrics:
        weights = batch.get("reward_weights")
        with torch.no_grad():
            asked = self.target_critic if subset is None else partial(self.target_critic.module.ask, subset)
            next_value, log_prob = self.evaluate(batch["next_obs"], asked, noise, signed(JOINS["min"], weights))
            log_prob = in_last(log_prob, weights)
            discount = self.cfg.gamma ** batch["n_steps"] * (1 - batch["terminated"])
            target = batch["reward"] + discount * (next_value - self.temperature * log_prob)
        q = self.q(batch)
        loss = ensemble_mse(q, target, batch["weight"])
        self.critic_optim.step(loss)
        return {"critic": loss.detach(), "q": q.detach().mean()}

    @kernel
    def update_actor(self, batch: Batch, noise: Tensor) -> Metrics:
        weights = batch.get("reward_weights")
        value, log_prob = self.evaluate(batch["obs"], self.critic, noise, signed(JOINS[self.cfg.actor_value], weights))
        loss = weighted_mean(self.actor_loss(batch, total(value, weights), log_prob), batch["weight"])
        self.actor_optim.step(loss)
        metrics = {"actor": loss.detach(), "entropy": -log_prob.detach().mean(), "temperature": self.temperature}
        if self.entropy_target is not None:
            metrics |= self.entropy_target.adjust(average(-log_prob.detach(), batch["weight"]))
        elif self.cfg.learn_temperature:
            gap = weighted_mean(log_prob.detach() + self.target_entropy, batch["weight"])
            self.temperature_optim.step(-self.log_temperature * gap)
        return metrics

    def actor_loss(self, batch: Batch, value: Tensor, log_prob: Tensor) -> Tensor:
        """To be minimised, per row, from what `evaluate` says of it; [batch]."""
        return self.temperature * log_prob - value

    def q(self, batch: Batch) -> Tensor:
        """What every critic says of the actions that were taken: [members, batch], or [members, batch, columns]."""
        return self.critic(batch["obs"], batch["action"])

    def evaluate(self, obs: Any, critic: Callable[..., Tensor], noise: Tensor, over: Join) -> tuple[Tensor, Tensor]:
        """The value of what the policy would do, joined over the members, [batch] or [batch, columns], and its
        log-probability [batch]."""
        action, log_prob = self.actor(obs).sample(noise)
        return over(critic(obs, action)), log_prob

    @property
    def temperature(self) -> Tensor:
        """The entropy coefficient alpha, detached."""
        return self.log_temperature.detach().exp() if self.entropy_target is None else self.entropy_target.alpha
