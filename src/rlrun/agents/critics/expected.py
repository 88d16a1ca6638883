"""Critics of the expected return, a number: `algo.critic` = min, mean, rescaled and hl_gauss.

They differ in the representation and in the loss. All reduce the members of an ensemble to their minimum.
"""

import torch
from torch import Tensor

from rlrun.agents.critics.ensemble import Ensemble, Members, check_atoms, minimum, pessimistic
from rlrun.core.state import RunningMoments
from rlrun.functional.distributional import gaussian_histogram, kl_divergence
from rlrun.functional.losses import huber
from rlrun.functional.scalars import squash, unsquash
from rlrun.settings import PositiveFloat, Units, config, register


class ExpectedReturn(Ensemble):
    """Base class. Predicts the number itself, with half the squared error as loss.

    The members are reduced to their minimum (clipped double Q-learning; Fujimoto et al. 2018, arXiv 1802.09477).
    """

    delta = float("inf")  # threshold of the Huber loss

    def value(self, z: Tensor) -> Tensor:
        return z

    def target_return(self, z: Tensor, weights: Tensor | None = None) -> Tensor:
        return pessimistic(minimum, self.value(z), weights)

    def actor_value(self, z: Tensor, weights: Tensor | None = None) -> Tensor:
        if self.target_members is not None:
            return self.value(z).mean(0)
        return self.target_return(z, weights)

    def backup(self, returns: Tensor, reward: Tensor, discount: Tensor, cost: Tensor | None = None) -> Tensor:
        if cost is not None:
            returns = returns - cost
        return reward + discount * returns

    def loss(self, z: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        error = z - target
        return huber(error, self.delta), error


class ExpectedNumber(ExpectedReturn):
    """Base of the critics whose loss may be in units of the standard deviation of targets."""

    @config
    class Config(Members):
        normalize_target: bool

    def __init__(self, cfg: Config):
        super().__init__(cfg)
        if cfg.normalize_target:
            self.moments = RunningMoments(())


@register("critic", "min")
class Minimum(ExpectedNumber):
    """Predicts the expected return, trained with the squared error."""

    @config
    class Config(ExpectedNumber.Config):
        pass


@register("critic", "mean")
class Mean(ExpectedNumber):
    """Predicts the expected return, which is the mean of the return, trained with the Huber loss."""

    @config
    class Config(ExpectedNumber.Config):
        huber_delta: PositiveFloat | None

    def __init__(self, cfg: Config):
        super().__init__(cfg)
        if cfg.huber_delta is not None:
            self.delta = cfg.huber_delta


@register("critic", "rescaled")
class Rescaled(Mean):
    """Predicts squash(expected return), so the loss is on the squashed scale (arXiv 1805.11593; R2D2, sec. 2.3)."""

    def value(self, z: Tensor) -> Tensor:
        return unsquash(z)

    def backup(self, returns: Tensor, reward: Tensor, discount: Tensor, cost: Tensor | None = None) -> Tensor:
        return squash(super().backup(returns, reward, discount, cost))


@register("critic", "hl_gauss")
class HLGauss(ExpectedReturn):
    """Predicts the expected return by classification, HL-Gauss (Imani and White 2018, arXiv 1806.04613).

    The outputs are logits of a histogram of `num_atoms` bins. The target is the histogram of a normal distribution
    around the TD target, which is clipped to [v_min, v_max] (Farebrother et al. 2024, arXiv 2403.03950, sec. 3.1). The
    loss is KL(target || prediction).
    """

    edges: Tensor
    centers: Tensor

    @config
    class Config(Members):
        num_atoms: Units
        v_min: float
        v_max: float
        sigma: PositiveFloat

    def __init__(self, cfg: Config):
        super().__init__(cfg)
        check_atoms(cfg)
        self.shape = (cfg.num_atoms,)
        edges = torch.linspace(cfg.v_min, cfg.v_max, cfg.num_atoms + 1)
        self.std = cfg.sigma * (cfg.v_max - cfg.v_min) / cfg.num_atoms
        self.register_buffer("edges", edges, persistent=False)
        self.register_buffer("centers", (edges[1:] + edges[:-1]) / 2, persistent=False)

    def value(self, z: Tensor) -> Tensor:
        return (z.softmax(-1) * self.centers).sum(-1)

    def backup(self, returns: Tensor, reward: Tensor, discount: Tensor, cost: Tensor | None = None) -> Tensor:
        mean = super().backup(returns, reward, discount, cost)
        return gaussian_histogram(mean, self.std, self.edges)

    def loss(self, z: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        divergence = kl_divergence(target, z)
        return divergence, divergence
