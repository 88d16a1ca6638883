"""The part `algo.advantage`: the estimator of advantages and value targets of on-policy agents."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from rlrun.agents.policy.columns import Column, columns, combined
from rlrun.buffers.minibatches import per_step
from rlrun.core.state import RunningMoments
from rlrun.errors import ConfigError
from rlrun.functional.losses import standardise
from rlrun.functional.returns import gae, td_lambda, vtrace
from rlrun.settings import Fraction, PositiveFloat, Scheduled, config, register
from rlrun.types import Batch, Bonus, Discount


class AdvantageEstimator(nn.Module):
    """Base class of the estimators, with the normalisation of advantages."""

    @config
    class Config:
        gae_lambda: Scheduled[Fraction]
        normalize: Literal["none", "minibatch", "rollout", "running"]
        clip: PositiveFloat | None

    def __init__(self, cfg: Any):
        super().__init__()
        self.cfg = cfg
        if cfg.normalize == "running":
            self.moments = RunningMoments(())

    def old_log_prob(self, policy: nn.Module, rollout: Batch, length: int) -> Tensor:
        """Returns the log-probabilities of the actions that the losses compare the policy with, [time, env].

        length: number of timesteps of the sequences that the policy learns from, as in `minibatches`.
        """
        return rollout["log_prob"]

    def estimates(
        self,
        rollout: Batch,
        values: Tensor,
        next_values: Tensor,
        log_prob: Tensor,
        gamma: Discount,
        bonuses: Sequence[Bonus],
    ) -> tuple[Tensor, Tensor]:
        """Returns the advantages, [time, env], and the value targets in the shape of the values.

        With several rewards, values are [time, env, rewards], and the advantages are their weighted sum. log_prob: of
        `old_log_prob`.
        """
        log_ratio = log_prob - rollout["log_prob"]  # 0, unless the rollout was collected by an earlier policy
        advantages = []
        returns = []
        for column in columns(rollout, values, next_values, gamma, bonuses):
            advantage, target = self.estimate(column, log_ratio)
            advantages.append(advantage)
            returns.append(target)
        total_advantage = combined(advantages, bonuses, rollout.get("reward_weights"))
        return total_advantage, torch.stack(returns, -1).view_as(values)

    def estimate(self, column: Column, log_ratio: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the advantages and the value targets for one reward column, both [time, env].

        log_ratio [time, env]: `old_log_prob` minus the log-probabilities of the policy that collected the rollout.
        """
        raise NotImplementedError

    def normalise_rollout(self, advantage: Tensor, weight: Tensor) -> Tensor:
        """Returns the advantages [time, env], normalised over the rollout or by running statistics if configured."""
        if self.cfg.normalize == "rollout":
            return standardise(advantage, weight)
        if self.cfg.normalize == "running":
            self.moments.add(advantage[weight > 0])
            centred = (advantage - self.moments.mean).to(advantage)
            std = self.moments.var.to(advantage).sqrt()
            return centred / (std + 1e-8)
        return advantage

    def normalise_minibatch(self, advantage: Tensor, weight: Tensor) -> Tensor:
        """Returns the advantages of a minibatch, normalised over the minibatch and then clipped if configured."""
        if self.cfg.normalize == "minibatch":
            advantage = standardise(advantage, weight)
        if self.cfg.clip is not None:
            advantage = advantage.clamp(-self.cfg.clip, self.cfg.clip)
        return advantage


@register("advantage", "gae")
class GAE(AdvantageEstimator):
    """Generalised advantage estimation (Schulman et al. 2016, arXiv 1506.02438).

    The value targets are advantage + value, or lambda-returns with their own lambda.
    """

    @config
    class Config(AdvantageEstimator.Config):
        value_lambda: Scheduled[Fraction] | None

    def estimate(self, column: Column, log_ratio: Tensor) -> tuple[Tensor, Tensor]:
        advantage = gae(*column, self.cfg.gae_lambda)
        if self.cfg.value_lambda is None:
            return advantage, advantage + column.value
        returns = td_lambda(
            column.reward, column.next_value, column.terminated, column.done, column.gamma, self.cfg.value_lambda
        )
        return advantage, returns


@register("advantage", "vtrace")
class VTrace(AdvantageEstimator):
    """V-trace (IMPALA; Espeholt et al. 2018, arXiv 1802.01561), for rollouts that an earlier policy collected.

    The targets and advantages contain the importance weights of the policy at the start of the update. The losses of
    the update therefore compare the learning policy with the policy at the start, not with the one that collected the
    rollout: the ratios of PPO are 1 at first, however old the rollout is.
    """

    @config
    class Config(AdvantageEstimator.Config):
        rho_clip: Scheduled[PositiveFloat]
        c_clip: Scheduled[PositiveFloat]

    def __init__(self, cfg: Any):
        super().__init__(cfg)
        if cfg.rho_clip < cfg.c_clip:
            line = f"algo.advantage.rho_clip={cfg.rho_clip}: must be at least algo.advantage.c_clip"
            raise ConfigError(f"{line}, which is {cfg.c_clip}")

    def old_log_prob(self, policy: nn.Module, rollout: Batch, length: int) -> Tensor:
        def log_prob(steps: Batch) -> Tensor:
            return policy(steps["obs"]).log_prob(steps["action"])

        return per_step(log_prob, rollout, ("obs", "action"), length)

    def estimate(self, column: Column, log_ratio: Tensor) -> tuple[Tensor, Tensor]:
        cfg = self.cfg
        target, advantage = vtrace(log_ratio, *column, cfg.rho_clip, cfg.c_clip, cfg.gae_lambda)
        return advantage, target
