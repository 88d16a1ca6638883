"""MuZero's three networks: what is seen to a latent state, that and an action to the next one, and predictions."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor, nn

from rlrun.functional.scalars import Plain, TwoHot
from rlrun.networks.heads import Head


class LatentModel(nn.Module):
    """Latent states [batch, latent] lie in [0, 1], so that many steps in a row keep their scale (appendix G).

    torso: builds the chosen network over named inputs or spaces. scalar: how outputs mean a value or a reward.
    """

    def __init__(self, torso: Callable[..., Any], action: Discrete, latent: int, scalar: Plain | TwoHot):
        super().__init__()
        space = Box(0.0, 1.0, (latent,), np.float32)
        self.scalar, self.actions, self.latent = scalar, int(action.n), latent
        self.representation = Head(torso(), latent)
        self.dynamics = Head(torso(inputs=(space, "action")), latent + scalar.size)
        self.prediction = Head(torso(inputs=(space,)), self.actions + scalar.size)

    def encode(self, obs: Any) -> Tensor:
        """[batch, ...] -> [batch, latent]."""
        return unit(self.representation(obs))

    def step(self, latent: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """(next latent state, output of the reward)."""
        change, reward = self.dynamics(latent, action).split([self.latent, self.scalar.size], -1)
        return unit(latent + change), reward

    def predict(self, latent: Tensor) -> tuple[Tensor, Tensor]:
        """(logits of the policy, output of the value); any leading dimensions."""
        logits, value = self.prediction(latent).split([self.actions, self.scalar.size], -1)
        return logits, value

    def forward(self, obs: Any) -> Tensor:
        """The value of what is seen, [batch]."""
        return self.scalar.mean(self.predict(self.encode(obs))[1])


def unit(x: Tensor) -> Tensor:
    """Every row stretched to [0, 1]."""
    low, high = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    return (x - low) / (high - low + 1e-5)


def scale_gradient(x: Tensor, factor: float) -> Tensor:
    """x, with gradients multiplied."""
    return torch.lerp(x.detach(), x, factor)
