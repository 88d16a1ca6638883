"""Bandit agents with a posterior over the mean reward of every arm: Thompson sampling (Thompson 1933), Bayesian UCB.

The upper confidence bound (UCB) is the posterior mean plus a multiple of the posterior standard deviation, not a
quantile of the posterior as in Kaufmann et al. 2012.
"""

from typing import Literal

from torch import Tensor

from rlrun.agents.bandits.multi_armed import MultiArmed
from rlrun.errors import RunError
from rlrun.functional.posteriors import beta_moments, normal_mean
from rlrun.settings import NonNegativeFloat, PositiveFloat, config, register
from rlrun.types import Batch, Context, Metrics


@register("algo", "bayesian_bandit")
class Bayesian(MultiArmed):
    """Thompson sampling (`play=sample`) or Bayesian UCB (`play=bound`)."""

    @config
    class Config:
        play: Literal["sample", "bound"]
        posterior: Literal["beta", "normal"]
        confidence: NonNegativeFloat
        alpha: PositiveFloat
        beta: PositiveFloat
        prior_mean: float
        prior_std: PositiveFloat
        reward_std: PositiveFloat

    cfg: Config

    def score(self, context: Tensor) -> Tensor:
        mean, std = self.moments(context)
        if self.cfg.play == "bound":
            return mean + self.cfg.confidence * std
        if self.cfg.posterior == "normal":
            return mean + std * self.noise.normal(*mean.shape)
        alpha, beta = self.beta_posterior(context)
        x = self.noise.gamma(alpha)
        y = self.noise.gamma(beta)
        return x / (x + y)  # a draw from Beta(alpha, beta)

    def value(self, context: Tensor) -> Tensor:
        mean, _ = self.moments(context)
        return mean

    def moments(self, context: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the posterior mean and standard deviation of every arm's mean reward, both [batch, arms]."""
        cfg = self.cfg
        if cfg.posterior == "beta":
            alpha, beta = self.beta_posterior(context)
            return beta_moments(alpha, beta)
        counts = self.counts[context]
        totals = self.totals[context]
        return normal_mean(counts, totals, cfg.prior_mean, cfg.prior_std, cfg.reward_std)

    def beta_posterior(self, context: Tensor) -> tuple[Tensor, Tensor]:
        """Returns alpha and beta of the Beta posterior of every arm, both [batch, arms]."""
        counts = self.counts[context]
        totals = self.totals[context]
        alpha = self.cfg.alpha + totals
        beta = self.cfg.beta + counts - totals
        return alpha, beta

    def update(self, rollout: Batch, ctx: Context) -> Metrics:
        reward = rollout["reward"]
        if self.cfg.posterior == "beta" and ((reward < 0) | (reward > 1)).any():
            raise RunError("algo.posterior=beta: rewards must lie in [0, 1]; for others set algo.posterior=normal")
        return super().update(rollout, ctx)
