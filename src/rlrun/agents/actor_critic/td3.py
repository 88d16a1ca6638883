"""Twin delayed deep deterministic policy gradient (Fujimoto et al. 2018, arXiv 1802.09477).

One critic, no delay and no target noise make it DDPG (Lillicrap et al. 2015, arXiv 1509.02971), whose
Ornstein-Uhlenbeck exploration is an option. Of a reward vector every component has a value, and the actor weighs them.
"""

from typing import Any, Literal

import torch
from gymnasium.spaces import Box
from torch import Tensor

from rlrun.agents.actor_critic.columns import columned, signed, total
from rlrun.config.schema import (
    Fraction,
    NonNegativeFloat,
    NStepReturns,
    PositiveFloat,
    PositiveFraction,
    PositiveInt,
    Units,
    config,
)
from rlrun.core.agent import Agent, kernel, policy
from rlrun.core.state import Optim, Target
from rlrun.functional.losses import ensemble_mse, weighted_mean
from rlrun.functional.targets import smoothed
from rlrun.networks.heads import DeterministicPolicy, Value
from rlrun.registry import register
from rlrun.types import Batch, Context, Metrics


@register("algo", "td3")
class TD3(Agent):
    actions = Box
    needs_bounds = True
    reward_vectors = True
    remembers = True

    @config
    class Config(NStepReturns):
        tau: PositiveFraction
        members: Units
        policy_delay: PositiveInt
        actor_learning_rate: PositiveFloat
        critic_learning_rate: PositiveFloat
        lr_schedule: dict[str, Any]
        target_noise: NonNegativeFloat
        target_noise_clip: NonNegativeFloat
        noise: Literal["gaussian", "ou"]
        noise_std: NonNegativeFloat
        noise_theta: Fraction

    def __init__(self, cfg, spec, parts):
        super().__init__(cfg, spec, parts)
        self.actor = DeterministicPolicy(parts.torso("actor"), spec.action.shape[0])
        torso = parts.torso("critic", inputs=("obs", "action"), members=cfg.members)
        self.critic = Value(torso, cfg.members, columns=spec.reward_dim)
        self.target_actor, self.target_critic = Target(self.actor, cfg.tau), Target(self.critic, cfg.tau)
        self.actor_optim = Optim(self.actor.parameters(), cfg.actor_learning_rate, schedule=cfg.lr_schedule)
        self.critic_optim = Optim(self.critic.parameters(), cfg.critic_learning_rate, schedule=cfg.lr_schedule)
        self.act_noise, self.update_noise = parts.stream("act"), parts.stream("update")

    @policy
    def act(self, obs: Any, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        obs, extras = self.memory.advanced(obs)
        action = self.actor(obs)
        if not explore:
            return action, extras
        noise = self.cfg.noise_std * self.act_noise.normal(*action.shape)
        if self.cfg.noise == "gaussian":
            return (action + noise).clamp(-1, 1), extras
        # a mean-reverting walk that starts at 0 with every episode
        walk = carry.get("carry.noise", torch.zeros_like(action)) * ~carry["first"].unsqueeze(-1)
        walk = walk - self.cfg.noise_theta * walk + noise
        return (action + walk).clamp(-1, 1), extras | {"carry.noise": walk}

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        for optim in (self.actor_optim, self.critic_optim):
            optim.tick(ctx.progress)
        batch = columned(batch)
        metrics = self.update_critic(batch, self.update_noise.normal(*batch["action"].shape))
        if (ctx.updates + 1) % self.cfg.policy_delay == 0:
            metrics |= self.update_actor(batch)
            self.target_actor.track()
            self.target_critic.track()
        return metrics

    @kernel
    def update_critic(self, batch: Batch, noise: Tensor) -> Metrics:
        with torch.no_grad():
            next_action = self.target_actor(batch["next_obs"])
            next_action = smoothed(next_action, noise, self.cfg.target_noise, self.cfg.target_noise_clip)
            least = signed(lambda q: q.amin(0), batch.get("reward_weights"))
            next_value = least(self.target_critic(batch["next_obs"], next_action))
            discount = self.cfg.gamma ** batch["n_steps"] * (1 - batch["terminated"])
            target = batch["reward"] + discount * next_value
        q = self.critic(batch["obs"], batch["action"])  # [members, batch]
        loss = ensemble_mse(q, target, batch["weight"])
        self.critic_optim.step(loss)
        return {"critic": loss.detach(), "q": q.detach().mean()}

    @kernel
    def update_actor(self, batch: Batch) -> Metrics:
        value = self.critic.ask(slice(1), batch["obs"], self.actor(batch["obs"]))[0]
        loss = -weighted_mean(total(value, batch.get("reward_weights")), batch["weight"])
        self.actor_optim.step(loss)
        return {"actor": loss.detach()}
