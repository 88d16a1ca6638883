"""Critics of the distribution of the return: `algo.critic` = categorical, quantile and truncated."""

from typing import Any, Literal

import torch
from torch import Tensor

from rlrun.agents.critics.ensemble import Ensemble, Members, check_atoms, lowest_member, minimum, pessimistic, signs
from rlrun.errors import ConfigError
from rlrun.functional.distributional import kl_divergence, project, truncated
from rlrun.functional.losses import quantile_huber
from rlrun.settings import NonNegativeInt, PositiveFloat, Units, config, register


class DistributionCritic(Ensemble):
    """Base of the critics whose returns are distributions, [..., n]."""

    def value(self, z: Tensor) -> Tensor:
        return self.mean(self.distribution(z))

    def distribution(self, z: Tensor) -> Tensor:
        """Returns the distribution of the return that a network's output stands for; [..., n] -> [..., n]."""
        return z

    def mean(self, returns: Tensor) -> Tensor:
        """Returns the mean of a distribution of returns, [..., n] -> [...]."""
        raise NotImplementedError

    def actor_value(self, z: Tensor, weights: Tensor | None = None) -> Tensor:
        if self.target_members is not None:
            return self.value(z).mean(0)
        return self.mean(self.target_return(z, weights))


@register("critic", "categorical")
class CategoricalCritic(DistributionCritic):
    """Predicts logits of a distribution over fixed atoms (C51; Bellemare et al. 2017, arXiv 1707.06887).

    The target is the distribution of the member with the lowest mean. The loss is KL(target || prediction), which has
    the gradient of the cross-entropy. Unlike the cross-entropy, the KL divergence is 0 if the prediction equals the
    target, as a priority should be (arXiv 1710.02298).
    """

    atoms: Tensor

    @config
    class Config(Members):
        num_atoms: Units
        v_min: float
        v_max: float

    def __init__(self, cfg: Config):
        super().__init__(cfg)
        check_atoms(cfg)
        self.shape = (cfg.num_atoms,)
        self.register_buffer("atoms", torch.linspace(cfg.v_min, cfg.v_max, cfg.num_atoms), persistent=False)

    def distribution(self, z: Tensor) -> Tensor:
        return z.softmax(-1)

    def mean(self, returns: Tensor) -> Tensor:
        return (returns * self.atoms).sum(-1)

    def target_return(self, z: Tensor, weights: Tensor | None = None) -> Tensor:
        probability = self.distribution(z)
        value = self.mean(probability)
        if weights is not None:
            value = signs(weights) * value
        return lowest_member(probability, value)

    def backup(self, returns: Tensor, reward: Tensor, discount: Tensor, cost: Tensor | None = None) -> Tensor:
        next_return = self.atoms
        if cost is not None:
            next_return = next_return - cost.unsqueeze(-1)
        position = reward.unsqueeze(-1) + discount.unsqueeze(-1) * next_return
        return project(position, returns, self.atoms)

    def loss(self, z: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        divergence = kl_divergence(target, z)
        return divergence, divergence


class QuantileCriticBase(DistributionCritic):
    """Base of the critics that predict `num_quantiles` quantiles (QR-DQN; Dabney et al. 2018, arXiv 1710.10044)."""

    def __init__(self, cfg: Any):
        super().__init__(cfg)
        self.shape = (cfg.num_quantiles,)
        self.delta = cfg.huber_delta
        self.sum_over_quantiles = cfg.sum_over_quantiles

    def mean(self, returns: Tensor) -> Tensor:
        return returns.mean(-1)

    def target_return(self, z: Tensor, weights: Tensor | None = None) -> Tensor:
        if weights is not None:
            weights = weights.unsqueeze(-1)
        return pessimistic(self.reduce, z, weights)

    def reduce(self, quantiles: Tensor) -> Tensor:
        """Returns the quantiles, or more generally samples, of a TD target; [members, ..., n] -> [..., samples]."""
        raise NotImplementedError

    def backup(self, returns: Tensor, reward: Tensor, discount: Tensor, cost: Tensor | None = None) -> Tensor:
        if cost is not None:
            returns = returns - cost.unsqueeze(-1)
        return reward.unsqueeze(-1) + discount.unsqueeze(-1) * returns

    def loss(self, z: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        loss = quantile_huber(z, target, self.delta, self.sum_over_quantiles)
        return loss, loss


@register("critic", "quantile")
class QuantileCritic(QuantileCriticBase):
    """Predicts quantiles. The target is their minimum over the members, or those of the member with the lowest mean."""

    @config
    class Config(Members):
        num_quantiles: Units
        huber_delta: PositiveFloat
        sum_over_quantiles: bool
        minimum_of: Literal["quantiles", "means"]

    def __init__(self, cfg: Config):
        super().__init__(cfg)
        self.minimum_of = cfg.minimum_of

    def reduce(self, quantiles: Tensor) -> Tensor:
        if self.minimum_of == "means":
            return lowest_member(quantiles, self.mean(quantiles))
        return minimum(quantiles)


@register("critic", "truncated")
class TruncatedCritic(QuantileCriticBase):
    """Predicts quantiles, and drops the highest in targets (TQC; Kuznetsov et al. 2020, arXiv 2005.04269).

    The quantiles of all members are pooled and sorted, and the target drops the `dropped_quantiles` * members highest
    (eq. 11). The actor maximises the mean over all quantiles of all members (eq. 14).
    """

    @config
    class Config(Members):
        num_quantiles: Units
        huber_delta: PositiveFloat
        sum_over_quantiles: bool
        dropped_quantiles: NonNegativeInt

    def __init__(self, cfg: Config):
        super().__init__(cfg)
        if cfg.dropped_quantiles >= cfg.num_quantiles:
            raise ConfigError(
                f"algo.critic.dropped_quantiles={cfg.dropped_quantiles}: must be below "
                f"algo.critic.num_quantiles={cfg.num_quantiles}"
            )
        self.dropped_quantiles = cfg.dropped_quantiles

    def reduce(self, quantiles: Tensor) -> Tensor:
        return truncated(quantiles, self.dropped_quantiles)

    def actor_value(self, z: Tensor, weights: Tensor | None = None) -> Tensor:
        return self.value(z).mean(0)
