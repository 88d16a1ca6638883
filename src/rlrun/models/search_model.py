"""MuZero's three networks (arXiv 1911.08265): representation, dynamics and prediction."""

from collections.abc import Callable

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor, nn

from rlrun.functional.scalars import Plain, TwoHot
from rlrun.networks.heads import Head
from rlrun.types import Obs


class LatentModel(nn.Module):
    """The three networks, with latent states [batch, latent] in [0, 1] that keep their scale over many steps
    (appendix G).

    torso: function that builds a torso for given inputs. scalar: how outputs represent values and rewards.
    """

    def __init__(
        self,
        torso: Callable[..., nn.Module],
        action: Discrete,
        latent: int,
        scalar: Plain | TwoHot,
    ):
        super().__init__()
        self.scalar = scalar
        self.actions = int(action.n)
        self.latent = latent
        latent_space = Box(0.0, 1.0, (latent,), np.float32)
        self.representation = Head(torso(), latent)
        self.dynamics = Head(torso(inputs=(latent_space, "action")), latent + scalar.size)
        self.prediction = Head(torso(inputs=(latent_space,)), self.actions + scalar.size)

    def encode(self, obs: Obs) -> Tensor:
        """Returns the latent states of observations; [batch, ...] -> [batch, latent]."""
        return unit(self.representation(obs))

    def step(self, latent: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the next latent states [batch, latent], and reward outputs [batch, scalar.size]."""
        output = self.dynamics(latent, action)
        change, reward = output.split([self.latent, self.scalar.size], -1)
        return unit(latent + change), reward

    def predict(self, latent: Tensor) -> tuple[Tensor, Tensor]:
        """Returns policy logits [..., actions] and value outputs [..., scalar.size] of latent states [..., latent]."""
        output = self.prediction(latent)
        logits, value = output.split([self.actions, self.scalar.size], -1)
        return logits, value

    def forward(self, obs: Obs) -> Tensor:
        """Returns the value of observations, [batch]."""
        _, value = self.predict(self.encode(obs))
        return self.scalar.mean(value)


def unit(x: Tensor) -> Tensor:
    """Returns every row, shifted and scaled to [0, 1]."""
    low = x.amin(-1, keepdim=True)
    high = x.amax(-1, keepdim=True)
    return (x - low) / (high - low + 1e-5)


def scale_gradient(x: Tensor, factor: float) -> Tensor:
    """Returns x, with its gradient multiplied by `factor` in the backward pass."""
    return torch.lerp(x.detach(), x, factor)
