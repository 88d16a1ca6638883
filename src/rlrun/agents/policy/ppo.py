"""Proximal policy optimisation with a clipped objective (Schulman et al. 2017, arXiv 1707.06347).

Advantages by GAE (arXiv 1506.02438). Beyond the paper, by option: clipped values, a limit on the KL divergence, and
advantages normalised per minibatch, as in the common implementations.
"""

from typing import Any

import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from rlrun.buffers.rollout import flat, minibatches
from rlrun.config.schema import Fraction, NonNegativeFloat, PositiveFloat, PositiveInt, config
from rlrun.core.agent import Agent, kernel
from rlrun.core.state import Optim
from rlrun.functional.distributions import Categorical, Normal
from rlrun.functional.losses import clipped_surrogate, clipped_value_error, weighted_mean
from rlrun.functional.returns import gae
from rlrun.functional.schedules import linear
from rlrun.networks.heads import Value, stochastic_policy
from rlrun.registry import register
from rlrun.types import Batch, Context, Metrics


@register("algo", "ppo")
class PPO(Agent):
    actions = (Box, Discrete)

    @config
    class Config:
        gamma: Fraction
        gae_lambda: Fraction
        learning_rate: PositiveFloat
        anneal_learning_rate: bool
        epochs: PositiveInt
        minibatch_size: PositiveInt
        clip_range: PositiveFloat
        clip_value: PositiveFloat | None
        normalize_advantage: bool
        ent_coef: NonNegativeFloat
        value_coef: NonNegativeFloat
        max_grad_norm: PositiveFloat | None
        target_kl: PositiveFloat | None

    def __init__(self, cfg, spec, parts):
        super().__init__(cfg, spec, parts)
        self.policy = stochastic_policy(parts.torso(), spec.action, gain=0.01)
        self.value = Value(parts.torso(), gain=1.0)
        params = [*self.policy.parameters(), *self.value.parameters()]
        self.optim = Optim(params, cfg.learning_rate, eps=1e-5, max_grad_norm=cfg.max_grad_norm)
        self.act_noise, self.shuffle = parts.stream("act"), parts.stream("shuffle")

    @torch.no_grad()
    def act(self, obs: Any, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        dist = self.policy(obs)
        if not explore:
            return dist.mode(), {}
        action = dist.sample(dist.noise(self.act_noise))
        return action, {"log_prob": dist.log_prob(action)}

    def dist(self, obs: Any, carry: Batch) -> Normal | Categorical:
        return self.policy(obs)

    def update(self, rollout: Batch, ctx: Context) -> Metrics:
        if self.cfg.anneal_learning_rate:
            self.optim.learning_rate.fill_(linear(self.cfg.learning_rate, 0.0, ctx.progress))
        rollout = self.advantages(rollout)
        for epoch in minibatches(rollout, self.cfg.epochs, self.cfg.minibatch_size, self.shuffle):
            for batch in epoch:
                metrics = self.update_minibatch(batch)
            if self.cfg.target_kl is not None and metrics["kl"] > 1.5 * self.cfg.target_kl:
                break
        return metrics

    @torch.no_grad()
    def advantages(self, rollout: Batch) -> Batch:
        """What the minibatches need, [time, env, ...]: advantages, and the values and returns they came from."""
        shape = rollout["reward"].shape
        value, next_value = (self.value(flat(rollout[key])).view(shape) for key in ("obs", "next_obs"))
        done = rollout["terminated"] | rollout["truncated"]
        advantage = gae(
            rollout["reward"], value, next_value, rollout["terminated"], done, self.cfg.gamma, self.cfg.gae_lambda
        )
        kept = {key: rollout[key] for key in ("obs", "action", "log_prob", "weight")}
        return kept | {"advantage": advantage, "value": value, "return": advantage + value}

    @kernel
    def update_minibatch(self, batch: Batch) -> Metrics:
        advantage, weight = batch["advantage"], batch["weight"]
        if self.cfg.normalize_advantage and len(advantage) > 1:  # one row has no deviation
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        dist = self.policy(batch["obs"])
        log_ratio = dist.log_prob(batch["action"]) - batch["log_prob"]
        ratio = log_ratio.exp()
        policy_loss = -weighted_mean(clipped_surrogate(ratio, advantage, self.cfg.clip_range), weight)
        value = self.value(batch["obs"])
        clip_value = float("inf") if self.cfg.clip_value is None else self.cfg.clip_value
        value_loss = weighted_mean(clipped_value_error(value, batch["value"], batch["return"], clip_value), weight)
        entropy = weighted_mean(dist.entropy(), weight)
        self.optim.step(policy_loss + self.cfg.value_coef * value_loss - self.cfg.ent_coef * entropy)
        with torch.no_grad():
            kl = (ratio - 1 - log_ratio).mean()  # Schulman's low-variance estimate
            clipped = ((ratio - 1).abs() > self.cfg.clip_range).float().mean()
        return {
            "policy": policy_loss.detach(), "value": value_loss.detach(), "entropy": entropy.detach(),
            "kl": kl, "clipped": clipped,
        }  # fmt: skip
