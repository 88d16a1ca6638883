"""An entropy target moves the coefficient alpha of a policy's loss -alpha H, so that the entropy H keeps to a target.

It takes the place of an agent's own coefficient; a fixed one beside it would pull against it, and is refused.
"""

import math
from typing import Any

import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from rlrun import registry
from rlrun.errors import ConfigError
from rlrun.functional.losses import average
from rlrun.nested import flat
from rlrun.networks.choices import choices
from rlrun.types import Batch, Metrics

RANDOM_SHARE = 0.1  # of an action's range, or of its probability, that a policy at the default target leaves open


class EntropyTarget(nn.Module):
    @property
    def alpha(self) -> Tensor:
        """The coefficient now, detached."""
        raise NotImplementedError

    def adjust(self, entropy: Tensor) -> Metrics:
        """Move alpha after a batch whose mean entropy over its valid rows, a scalar, was this."""
        raise NotImplementedError

    def follow(self, policy: nn.Module, rollout: Batch) -> Metrics:
        """Move alpha after a rollout [time, env, ...]."""
        with torch.no_grad():
            entropy = average(policy(flat(rollout["obs"])).entropy(), flat(rollout["weight"]))
        return self.adjust(entropy)


class Window(nn.Module):
    """The last numbers of a series, and their mean."""

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


def entropy_target(values: dict[str, Any] | None, default: float, fixed: str | None) -> EntropyTarget | None:
    """The part that `algo.entropy_target` names. default: the target where its config gives none; fixed: the key of
    the agent's own that keeps the coefficient where it is, and what it must be."""
    if not values:
        return None
    if fixed is not None:
        raise ConfigError(f"{fixed} with algo.entropy_target={values['name']}, which moves that coefficient")
    target: EntropyTarget = registry.build("entropy_target", values, default, path="algo.entropy_target")
    return target


def default_target(space: Space) -> float:
    """Nats of actions in [-1, 1] spread over a tenth of their range, of choices of which a tenth goes to the others."""
    if isinstance(space, spaces.Box):
        return math.prod(space.shape) * math.log(2 * RANDOM_SHARE)
    p = RANDOM_SHARE
    return sum(p * math.log((n - 1) / p) - (1 - p) * math.log(1 - p) for n in choices(space) if n > 1)
