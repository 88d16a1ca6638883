"""Ensembles of critics Q(s, a): which members compute a target, and how their values are reduced to one."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from rlrun.config.schema import Units, config
from rlrun.core.random import Stream
from rlrun.errors import ConfigError
from rlrun.registry import register

Critic = Callable[..., Tensor]  # (obs, action) -> [members, batch]
Reduce = Callable[[Tensor], Tensor]  # [members, ...] -> [...]


class Ensemble(nn.Module):
    """Reduces the values of all members, [members, ...], to one value, [...]. Every member predicts the expected
    return."""

    members: int

    def draw(self, stream: Stream) -> Tensor | None:
        """Returns the indices of the members that compute the next target, or None for all members."""
        return None

    def target(self, q: Tensor) -> Tensor:
        """Returns the value for a TD target."""
        raise NotImplementedError

    def actor(self, q: Tensor) -> Tensor:
        """Returns the value that the actor maximises."""
        raise NotImplementedError


@register("critic", "min")
class Minimum(Ensemble):
    """Clipped double Q-learning: the minimum over all members (Fujimoto et al. 2018, arXiv 1802.09477)."""

    @config
    class Config:
        members: Units

    def __init__(self, cfg: Any):
        super().__init__()
        self.members = cfg.members

    def target(self, q: Tensor) -> Tensor:
        return q.amin(0)

    def actor(self, q: Tensor) -> Tensor:
        return q.amin(0)


@register("critic", "redq")
class RandomSubset(Ensemble):
    """REDQ (Chen et al. 2021, arXiv 2101.05982): the minimum over a random subset for targets, the mean over all
    members for the actor."""

    @config
    class Config:
        members: Units
        target_members: Units

    def __init__(self, cfg: Any):
        super().__init__()
        if cfg.target_members > cfg.members:
            raise ConfigError(
                f"algo.critic.target_members={cfg.target_members}: must be at most algo.critic.members={cfg.members}"
            )
        self.members = cfg.members
        self.target_members = cfg.target_members

    def draw(self, stream: Stream) -> Tensor:
        return stream.permutation(self.members)[: self.target_members]

    def target(self, q: Tensor) -> Tensor:
        return q.amin(0)

    def actor(self, q: Tensor) -> Tensor:
        return q.mean(0)
