"""Predictions of the return of an action: its mean, a distribution over atoms, or quantiles.

A prediction z has `size` numbers for each action. It is trained towards reward + discount * (prediction of the next
action). `loss` returns the loss and the replay priority of every row.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlrun.config.schema import PositiveFloat, Units, config
from rlrun.errors import ConfigError
from rlrun.functional.distributional import project
from rlrun.functional.losses import huber, quantile_huber
from rlrun.functional.returns import td_target
from rlrun.functional.scalars import squash, unsquash
from rlrun.registry import register


class Prediction(nn.Module):
    """Interprets the output of a critic for discrete actions."""

    size: int  # number of outputs for each action

    def value(self, z: Tensor) -> Tensor:
        """Returns the expected return; z [..., size] -> [...]."""
        raise NotImplementedError

    def loss(self, z: Tensor, next_z: Tensor, reward: Tensor, discount: Tensor) -> tuple[Tensor, Tensor]:
        """Returns losses and priorities, both [batch].

        z [batch, size]: prediction for the action taken. next_z [batch, size]: prediction for the next action.
        """
        raise NotImplementedError


@register("critic", "mean")
class Mean(Prediction):
    """Predicts the expected return, trained with the Huber loss."""

    @config
    class Config:
        huber_delta: PositiveFloat | None

    def __init__(self, cfg: Any):
        super().__init__()
        self.size = 1
        self.delta = float("inf")
        if cfg.huber_delta is not None:
            self.delta = cfg.huber_delta

    def value(self, z: Tensor) -> Tensor:
        return z.squeeze(-1)

    def loss(self, z: Tensor, next_z: Tensor, reward: Tensor, discount: Tensor) -> tuple[Tensor, Tensor]:
        target = td_target(reward, discount, self.value(next_z))
        error = self.value(z) - target
        return huber(error, self.delta), error


@register("critic", "rescaled")
class Rescaled(Mean):
    """Predicts squash(expected return), so the loss is on the squashed scale (arXiv 1805.11593; R2D2, sec. 2.3)."""

    def value(self, z: Tensor) -> Tensor:
        return unsquash(z.squeeze(-1))

    def loss(self, z: Tensor, next_z: Tensor, reward: Tensor, discount: Tensor) -> tuple[Tensor, Tensor]:
        target = td_target(reward, discount, self.value(next_z))
        error = z.squeeze(-1) - squash(target)
        return huber(error, self.delta), error


@register("critic", "categorical")
class Categorical(Prediction):
    """Predicts logits of a distribution over fixed atoms (C51; Bellemare et al. 2017, arXiv 1707.06887).

    The loss is KL(target || prediction). Its gradient equals that of the cross-entropy, but unlike the cross-entropy it
    is 0 if the prediction equals the target, as a priority should be (arXiv 1710.02298).
    """

    atoms: Tensor

    @config
    class Config:
        num_atoms: Units
        v_min: float
        v_max: float

    def __init__(self, cfg: Any):
        super().__init__()
        if cfg.num_atoms < 2 or cfg.v_min >= cfg.v_max:
            raise ConfigError("algo.critic: needs num_atoms of at least 2 and v_min below v_max")
        self.size = cfg.num_atoms
        self.register_buffer("atoms", torch.linspace(cfg.v_min, cfg.v_max, cfg.num_atoms), persistent=False)

    def value(self, z: Tensor) -> Tensor:
        return (z.softmax(-1) * self.atoms).sum(-1)

    def loss(self, z: Tensor, next_z: Tensor, reward: Tensor, discount: Tensor) -> tuple[Tensor, Tensor]:
        returns = td_target(reward[:, None], discount[:, None], self.atoms)  # [batch, atoms]
        target = project(returns, next_z.softmax(-1), self.atoms)
        divergence = F.kl_div(z.log_softmax(-1), target, reduction="none").sum(-1)
        return divergence, divergence


@register("critic", "quantile")
class Quantile(Prediction):
    """Predicts `num_quantiles` quantiles of the return (QR-DQN; Dabney et al. 2018, arXiv 1710.10044)."""

    @config
    class Config:
        num_quantiles: Units
        huber_delta: PositiveFloat

    def __init__(self, cfg: Any):
        super().__init__()
        self.size = cfg.num_quantiles
        self.delta = cfg.huber_delta

    def value(self, z: Tensor) -> Tensor:
        return z.mean(-1)

    def loss(self, z: Tensor, next_z: Tensor, reward: Tensor, discount: Tensor) -> tuple[Tensor, Tensor]:
        target = td_target(reward[:, None], discount[:, None], next_z)
        loss = quantile_huber(z, target, self.delta)
        return loss, loss
