"""Advantage actor-critic (Mnih et al. 2016, arXiv 1602.01783), synchronous, with advantages by GAE (arXiv 1506.02438).

The frame of all on-policy agents: advantages of a rollout, then epochs of minibatches. The critic shares the policy's
optimiser (joint) and, by option, its torso (shared), steps beside it with its own (split), is fitted before it (first),
or is not there: REINFORCE (Williams 1992, doi 10.1007/BF00992696).
"""

import math
from typing import Any, Literal

import torch
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from torch import Tensor

from rlrun.agents.entropy.target import default_target, entropy_target
from rlrun.agents.policy.columns import Column, columns, mixed
from rlrun.agents.policy.critic import critic, explained, value_loss
from rlrun.buffers.rollout import minibatches
from rlrun.config.schema import Discounted, Fraction, NonNegativeFloat, PositiveFloat, PositiveInt, Size, config
from rlrun.core.agent import Agent, kernel, policy
from rlrun.core.state import OPTIMIZERS, RunningMoments
from rlrun.functional.losses import average, kl_k1, kl_k3, standardise
from rlrun.functional.returns import gae, td_lambda
from rlrun.nested import flat
from rlrun.networks.heads import stochastic_policy
from rlrun.registry import register
from rlrun.types import Batch, Context, Metrics


@register("algo", "a2c")
class A2C(Agent):
    actions = (Box, Discrete, MultiDiscrete, MultiBinary)
    remembers = True
    reward_vectors = True

    @config
    class Config(Discounted):
        gae_lambda: Fraction
        value_lambda: Fraction | None
        normalize_advantage: Literal["none", "minibatch", "rollout", "running"]
        optimizer: Literal["adam", "rmsprop"]
        optimizer_eps: PositiveFloat
        learning_rate: PositiveFloat
        lr_schedule: dict[str, Any]
        epochs: PositiveInt
        minibatch_size: Size | None
        shuffle: bool
        initial_std: PositiveFloat
        noise_std: NonNegativeFloat
        ent_coef: NonNegativeFloat
        entropy_target: dict[str, Any] | None
        value_coef: NonNegativeFloat
        clip_value: PositiveFloat | None
        max_grad_norm: PositiveFloat | None
        target_kl: PositiveFloat | None
        critic: Literal["joint", "shared", "split", "first", "none"]
        value_learning_rate: PositiveFloat | None
        value_epochs: PositiveInt
        value_minibatch_size: Size | None
        advantage_after_fit: bool

    def __init__(self, cfg, spec, parts):
        super().__init__(cfg, spec, parts)
        role = None if cfg.critic == "shared" else "actor"
        torso = parts.torso(role)
        self.policy = stochastic_policy(torso, spec.action, gain=0.01, std=cfg.initial_std)
        self.value = critic(cfg, parts, torso, columns=spec.reward_dim)
        together = cfg.critic in ("joint", "shared")
        params = [*(self if together else self.policy).parameters()]  # of a shared torso only once
        options: Any = {"eps": cfg.optimizer_eps, "max_grad_norm": cfg.max_grad_norm, "schedule": cfg.lr_schedule}
        self.optim = OPTIMIZERS[cfg.optimizer](params, cfg.learning_rate, **options)
        fixed = f"algo.ent_coef={cfg.ent_coef}: must be 0" if cfg.ent_coef else None
        self.entropy_target = entropy_target(cfg.entropy_target, default_target(spec.action), fixed)
        if cfg.normalize_advantage == "running":
            self.moments = RunningMoments(())
        self.act_noise, self.shuffle = parts.stream("act"), parts.stream("shuffle") if cfg.shuffle else None

    @torch.no_grad()
    def rewind(self) -> None:
        """Exploration starts over, with the run."""
        if isinstance(self.spec.action, Box):
            self.policy.log_std.fill_(math.log(self.cfg.initial_std))

    @policy
    def act(self, obs: Any, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        obs, extras = self.memory.advanced(obs)
        dist = self.policy(obs)
        if not explore:
            return dist.mode(), extras
        if self.cfg.noise_std and isinstance(self.spec.action, Box):
            dist = dist.widened(self.cfg.noise_std)
        action = dist.sample(dist.noise(self.act_noise))
        return action, extras | {"log_prob": dist.log_prob(action)}

    def dist(self, obs: Any, carry: Batch) -> Any:
        return self.policy(obs)

    def update(self, rollout: Batch, ctx: Context) -> Metrics:
        cfg, metrics = self.cfg, {}
        if self.entropy_target is not None:
            metrics |= self.entropy_target.follow(self.policy, rollout)
        data = self.advantages(rollout)
        metrics |= {} if self.value is None else explained(data)
        if cfg.critic == "first":
            size = cfg.value_minibatch_size or cfg.minibatch_size
            epochs = minibatches(data, cfg.value_epochs, size, self.shuffle, self.memory.sequence_length)
            metrics |= self.value.fit_all(epochs, ctx.progress)
            data = self.advantages(rollout) if cfg.advantage_after_fit else data
        data["advantage"] = self.normalised(data)
        for epoch in minibatches(data, cfg.epochs, cfg.minibatch_size, self.shuffle, self.memory.sequence_length):
            self.anneal(ctx.progress)
            for batch in epoch:
                metrics |= self.update_minibatch(batch)
                if cfg.critic == "split":
                    metrics |= self.value.fit(batch)
            if cfg.target_kl is not None and metrics.get("kl", 0.0) > 1.5 * cfg.target_kl:
                break
        return metrics

    def anneal(self, progress: float) -> None:
        """What moves along a schedule, before every epoch."""
        self.optim.tick(progress)
        if self.cfg.critic == "split":
            self.value.optim.tick(progress)

    @torch.no_grad()
    def advantages(self, rollout: Batch) -> Batch:
        """What the minibatches need, [time, env, ...]: advantages, and the values and returns they came from."""
        value = next_value = torch.zeros_like(rollout["reward"])
        if self.value is not None:
            value, next_value = (self.value(flat(rollout[key])).view_as(value) for key in ("obs", "next_obs"))
        found = columns(rollout, value, next_value, self.cfg.gamma, self.spec.bonuses)
        advantage, target = zip(*(self.estimate(rollout, column) for column in found), strict=True)
        kept = {key: rollout[key] for key in ("obs", "action", "log_prob", "weight")}
        own = {"value": value, "return": torch.stack(target, -1).view_as(value)}
        return kept | own | {"advantage": mixed(advantage, self.spec.bonuses, rollout.get("reward_weights"))}

    def estimate(self, rollout: Batch, column: Column) -> tuple[Tensor, Tensor]:
        """Advantages and the critic's returns of one reward, [time, env]."""
        advantage = gae(*column, self.cfg.gae_lambda)
        if self.cfg.value_lambda is None:
            return advantage, advantage + column.value
        reward, _, *rest = column
        return advantage, td_lambda(reward, *rest, self.cfg.value_lambda)

    def normalised(self, data: Batch) -> Tensor:
        """Advantages as the minibatches see them, [time, env]; per minibatch it happens there."""
        advantage, weight = data["advantage"], data["weight"]
        if self.cfg.normalize_advantage == "rollout":
            return standardise(advantage, weight)
        if self.cfg.normalize_advantage == "running":
            self.moments.add(advantage[weight > 0])
            return (advantage - self.moments.mean).to(advantage) / (self.moments.var.to(advantage).sqrt() + 1e-8)
        return advantage

    @kernel
    def update_minibatch(self, batch: Batch) -> Metrics:
        advantage, weight = batch["advantage"], batch["weight"]
        if self.cfg.normalize_advantage == "minibatch":
            advantage = standardise(advantage, weight)
        dist = self.policy(batch["obs"])
        log_prob = dist.log_prob(batch["action"])
        log_ratio = log_prob - batch["log_prob"]
        policy_loss, metrics = self.policy_loss(log_prob, log_ratio, advantage, weight)
        entropy = average(dist.entropy(), weight)
        alpha = self.cfg.ent_coef if self.entropy_target is None else self.entropy_target.alpha
        loss = policy_loss - alpha * entropy
        if self.cfg.critic in ("joint", "shared"):
            error = value_loss(self.value, batch, self.cfg.clip_value)
            loss = loss + self.cfg.value_coef * error
            metrics |= {"value": error.detach()}
        metrics["grad_norm"] = self.optim.step(loss)
        log_ratio = log_ratio.detach()
        metrics |= {"kl": average(kl_k3(log_ratio), weight), "kl_k1": average(kl_k1(log_ratio), weight)}
        return metrics | {"policy": policy_loss.detach(), "entropy": entropy.detach()}

    def policy_loss(
        self, log_prob: Tensor, log_ratio: Tensor, advantage: Tensor, weight: Tensor
    ) -> tuple[Tensor, Metrics]:
        """To be minimised; log_prob of the actions taken, log_ratio to when they were taken; all [batch]."""
        return -average(log_prob * advantage, weight), {}
