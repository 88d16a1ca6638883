"""The coefficient alpha of the entropy H in a policy's loss, -alpha H: the part `algo.entropy` of an agent."""

import math

import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from rlrun.nested import flat
from rlrun.networks.choices import choices
from rlrun.types import Batch, Metrics

OPEN = 0.1  # fraction of the range of an action, or of the probability, in the default target entropy


class EntropyCoefficient(nn.Module):
    """Base of the coefficients. Built from a config and the default target entropy in nats."""

    @property
    def alpha(self) -> Tensor:
        """The current coefficient, a detached scalar."""
        raise NotImplementedError

    def adjust(self, entropy: Tensor, weight: Tensor) -> Metrics:
        """Adjust alpha after an update, by the entropies of its rows and their weights, both [batch]."""
        raise NotImplementedError

    def follow(self, policy: nn.Module, rollout: Batch) -> Metrics:
        """Adjust alpha after a rollout [time, env, ...]."""
        with torch.no_grad():
            entropy = policy(flat(rollout["obs"])).entropy()
        return self.adjust(entropy, flat(rollout["weight"]))


class MovingAverage(nn.Module):
    """The mean of the last `size` values of a series."""

    recent: Tensor
    seen: Tensor

    def __init__(self, size: int):
        super().__init__()
        self.size = size
        self.register_buffer("recent", torch.zeros(size))
        self.register_buffer("seen", torch.zeros(()))  # how many there are, at most `size`

    def add(self, x: Tensor) -> None:
        self.recent.copy_(torch.cat([self.recent[1:], x.detach().view(1)]))
        self.seen.add_(1).clamp_(max=self.size)

    def mean(self) -> Tensor:
        return self.recent.sum() / self.seen.clamp(min=1)


def default_target(space: Space) -> float:
    """Entropy in nats of actions uniform over a tenth of [-1, 1], or of discrete actions with nine tenths of the
    probability on one of them."""
    if isinstance(space, spaces.Box):
        return math.prod(space.shape) * math.log(2 * OPEN)
    total = 0.0
    for n in choices(space):
        if n > 1:
            total += OPEN * math.log((n - 1) / OPEN) - (1 - OPEN) * math.log(1 - OPEN)
    return total
