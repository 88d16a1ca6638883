"""Synchronous advantage actor-critic (A2C; Mnih et al. 2016, arXiv 1602.01783).

Base of the other on-policy agents: an update computes the advantages of a rollout, then learns in epochs of
minibatches.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import torch
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from torch import Tensor, nn

from rlrun.agents.entropy.components import default_targets, entropy_coefficient
from rlrun.agents.noise.action_noise import ActionNoise
from rlrun.agents.policy.advantages import AdvantageEstimator
from rlrun.agents.policy.critic_updates import CriticUpdate
from rlrun.agents.policy.trust_regions import TrustRegion
from rlrun.buffers.minibatches import check_division, minibatches
from rlrun.core.accumulator import epoch_metrics, mean_metrics
from rlrun.core.agent import Agent, kernel, policy
from rlrun.core.parts import Parts
from rlrun.core.state import OPTIMIZERS
from rlrun.functional.distributions import Distribution
from rlrun.functional.losses import kl_k1, kl_k3, masked_mean
from rlrun.networks.heads import PolicyHead
from rlrun.settings import (
    Discounted,
    Part,
    PositiveFloat,
    PositiveInt,
    Scheduled,
    Size,
    config,
    register,
    registry,
)
from rlrun.spaces import MixedSpace
from rlrun.types import Batch, Context, Metrics, Obs, Spec

KL_TOLERANCE = 1.5  # no epoch follows one whose KL divergence is above this multiple of target_kl, as in Spinning Up


@register("algo", "a2c")
class A2C(Agent):
    """Advantage actor-critic; base class of the other on-policy agents."""

    actions = (Box, Discrete, MultiDiscrete, MultiBinary, MixedSpace)
    acts_with = ("policy", "noise")
    explores_with = ("policy.log_std", "entropy")
    remembers = True
    reward_vectors = True
    reward_discounts = True

    @config
    class Config(Discounted):
        optimizer: Literal["adam", "rmsprop"]
        optimizer_eps: PositiveFloat
        learning_rate: Scheduled[PositiveFloat]
        epochs: PositiveInt
        minibatch_size: Size | None
        num_minibatches: Size | None
        shuffle: bool
        init_std: PositiveFloat
        max_grad_norm: PositiveFloat | None
        target_kl: PositiveFloat | None
        loss_after: bool
        head: Annotated[dict[str, object], Part("head")]
        advantage: Annotated[dict[str, object], Part("advantage")]
        critic_update: Annotated[dict[str, Any], Part("critic_update")]
        entropy: Annotated[dict[str, object], Part("entropy")]
        trust_region: Annotated[dict[str, object], Part("trust_region")]
        noise: Annotated[dict[str, object], Part("noise")]

    cfg: Config

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        # the torso of the policy is built first, because the critic may share it
        critic_update = registry.lookup("critic_update", cfg.critic_update["name"])
        torso = parts.torso(critic_update.policy_role)
        self.policy: PolicyHead = registry.build("head", cfg.head, torso, spec.action, cfg.init_std, path="algo.head")
        self.critic = parts.part("critic_update", cfg.critic_update, CriticUpdate, cfg, parts, torso, spec.reward_dim)
        trained: list[nn.Module] = [self.policy]
        if self.critic.in_policy_loss:
            trained.append(self.critic.network)
        self.critic.check_policy(self.policy, parts)
        self.num_kept = self.critic.num_kept
        self.optim = OPTIMIZERS[cfg.optimizer](
            nn.ModuleList(trained).parameters(),
            cfg.learning_rate,
            eps=cfg.optimizer_eps,
            max_grad_norm=cfg.max_grad_norm,
            within=self.critic.around(self.policy),
        )
        self.trust_region = parts.part("trust_region", cfg.trust_region, TrustRegion, spec.action)
        self.trust_region.check_policy(self.policy, parts)
        self.advantage = parts.part("advantage", cfg.advantage, AdvantageEstimator)
        self.entropy = entropy_coefficient(parts, cfg.entropy, spec.action, default_targets(spec.action, cfg.entropy))
        self.noise = parts.part("noise", cfg.noise, ActionNoise, spec)
        self.noise.check_policy(self.policy)
        check_division(cfg.minibatch_size, cfg.num_minibatches, self.memory.sequence_length, spec.num_envs)
        self.act_noise = parts.stream("act")
        self.shuffle = None  # minibatches in stored order
        if cfg.shuffle:
            self.shuffle = parts.stream("shuffle")

    @policy
    def act(self, obs: Obs, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        dist = self.policy(obs)
        if not explore:
            return dist.mode(), {}
        action, log_prob, extras = self.noise.sample(dist, carry, self.act_noise)
        return action, {"log_prob": log_prob} | extras

    def update(self, rollout: Batch, ctx: Context) -> Metrics:
        metrics = self.entropy.follow(self.policy, rollout)  # adjusts alpha, unless it is fixed
        data = self.advantages(rollout)
        self.critic.observe(data)
        metrics |= self.critic.explained_variance(data)
        metrics |= self.critic.fit_first(data, self.minibatches)
        if self.critic.advantage_after_fit:
            data = self.advantages(rollout)
        data["advantage"] = self.advantage.normalise_rollout(data["advantage"], data["weight"])
        epochs: list[Metrics] = []
        for epoch in self.minibatches(data, self.cfg.epochs):
            epochs.append(mean_metrics(self.step(batch) | self.critic.fit_after(batch) for batch in epoch))
            if self.cfg.target_kl is None:
                continue
            kl = epochs[-1].get("loss/kl", 0.0)
            if kl > KL_TOLERANCE * self.cfg.target_kl:
                break
        after = None
        if len(epochs) == 1 and self.cfg.loss_after:
            after = mean_metrics(self.losses(batch) | self.critic.losses(batch) for batch in epoch)
        metrics |= epoch_metrics(epochs, after)
        return metrics | self.critic.finish(rollout, data["return"])

    def minibatches(self, data: Batch, epochs: int, size: int | None = None) -> Iterator[list[Batch]]:
        """Yields the minibatches of every epoch: single steps, or sequences for a recurrent network.

        size: number of steps of a minibatch; None: `minibatch_size` of the config.
        """
        size = size or self.cfg.minibatch_size
        return minibatches(data, epochs, size, self.shuffle, self.memory.sequence_length, self.cfg.num_minibatches)

    @torch.no_grad()
    def advantages(self, rollout: Batch) -> Batch:
        """Returns the data for the losses, [time, env, ...]: entries of the rollout, `value`, `return` and
        `advantage`."""
        values, next_values = self.critic.values(rollout)
        log_prob = self.advantage.old_log_prob(self.policy, rollout, self.memory.sequence_length)
        gamma = self.spec.discount(self.cfg.gamma)
        advantage, returns = self.advantage.estimates(rollout, values, next_values, log_prob, gamma, self.spec.bonuses)
        return {
            "obs": rollout["obs"],
            "action": rollout["action"],
            "log_prob": log_prob,
            "weight": rollout["weight"],
            "value": values,
            "return": returns,
            "advantage": advantage,
        }

    def step(self, batch: Batch) -> Metrics:
        """Takes one gradient step on a minibatch, within the trust region of the policy."""
        before = self.trust_region.before(self.policy, batch)
        metrics = self.update_minibatch(batch)
        return metrics | self.trust_region.pull(self.policy, batch, before)

    @kernel
    def update_minibatch(self, batch: Batch) -> Metrics:
        """Takes one gradient step on steps [size, ...], or on sequences [length, sequences, ...] if recurrent."""
        loss, metrics = self.loss(batch)
        metrics["loss/grad_norm"] = self.optim.step(loss)
        return metrics

    @torch.no_grad()
    def losses(self, batch: Batch) -> Metrics:
        """Returns the metrics of `update_minibatch` without a gradient step."""
        _, metrics = self.loss(batch)
        return metrics

    def loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        """Returns the loss of a minibatch, 0-d, and its metrics."""
        weight = batch["weight"]
        advantage = self.advantage.normalise_minibatch(batch["advantage"], weight)
        dist = self.policy(batch["obs"])
        log_prob = dist.log_prob(batch["action"])
        log_ratio = log_prob - batch["log_prob"]  # current policy over the policy of `old_log_prob`
        policy_loss, policy_metrics = self.policy_loss(log_prob, log_ratio, advantage, weight)
        metrics = {f"loss/{name}": value for name, value in policy_metrics.items()}
        entropy_bonus, entropy = self.entropy.bonus(dist, weight)
        loss = policy_loss - entropy_bonus
        if self.critic.in_policy_loss:
            critic_loss = self.critic.loss(batch)
            loss = loss + self.critic.cfg.value_coef * critic_loss
            metrics["loss/critic"] = critic_loss.detach()
        log_ratio = log_ratio.detach()
        metrics["loss/kl"] = masked_mean(kl_k3(log_ratio), weight)
        metrics["loss/kl_k1"] = masked_mean(kl_k1(log_ratio), weight)
        metrics["loss/actor"] = policy_loss.detach()
        metrics["loss/entropy"] = entropy.detach()
        return loss, metrics

    def policy_loss(
        self, log_prob: Tensor, log_ratio: Tensor, advantage: Tensor, weight: Tensor
    ) -> tuple[Tensor, Metrics]:
        """Returns the policy loss and its metrics, named without `loss/`.

        All arguments have one entry for every step of the minibatch.
        log_prob: current log-probability of the stored action. log_ratio: log_prob minus the stored log-probability.
        """
        return -masked_mean(log_prob * advantage, weight), {}

    def state_values(self, obs: Obs) -> Tensor | None:
        return self.critic.value(obs)

    def action_distribution(self, obs: Obs, carry: Batch) -> Distribution:
        dist: Distribution = self.policy(obs)
        return dist

    def report(self) -> Metrics:
        return self.policy.report()
