"""The coefficient alpha of the entropy H in a policy's loss, -alpha H: the part `algo.entropy` of an agent."""

import math

import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from rlrun.nested import flat
from rlrun.networks.choices import choices
from rlrun.types import Batch, Metrics

OPEN = 0.1  # of an action's range, or of its probability, that a policy at the default target leaves open


class EntropyCoefficient(nn.Module):
    """Built from its config and the target entropy in nats where the config gives none."""

    @property
    def alpha(self) -> Tensor:
        """The coefficient now, a detached scalar."""
        raise NotImplementedError

    def adjust(self, entropy: Tensor, weight: Tensor) -> Metrics:
        """Move alpha after an update, by the entropies of its rows and their weights, both [batch]."""
        raise NotImplementedError

    def follow(self, policy: nn.Module, rollout: Batch) -> Metrics:
        """Move alpha after a rollout [time, env, ...]."""
        with torch.no_grad():
            entropy = policy(flat(rollout["obs"])).entropy()
        return self.adjust(entropy, flat(rollout["weight"]))


class MovingAverage(nn.Module):
    """The mean of the last numbers of a series."""

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
    """Entropy in nats of actions in [-1, 1] spread over a tenth of their range, or of choices that leave a tenth of
    the probability to the others."""
    if isinstance(space, spaces.Box):
        return math.prod(space.shape) * math.log(2 * OPEN)
    total = 0.0
    for n in choices(space):
        if n > 1:
            total += OPEN * math.log((n - 1) / OPEN) - (1 - OPEN) * math.log(1 - OPEN)
    return total
