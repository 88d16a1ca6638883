"""The part `algo.trajectory` of TAAC: how actions go on until the next switch (Yu et al. 2021, arXiv 2104.06521).

A trajectory tau [..., size * dims] holds `size` vectors of `dims` numbers in [-1, 1], one for each dimension of the
action. The first vector is the current action a; others are its derivatives in time. The methods are pure functions.
"""

import torch
from torch import Tensor

from rlrun.settings import config, register


class Trajectory:
    """Base class of the trajectories. Subclasses are built from a config."""

    size: int  # number of vectors

    def go_on(self, tau: Tensor) -> Tensor:
        """Returns the trajectory one timestep later."""
        raise NotImplementedError

    def start(self, output: Tensor, tau: Tensor) -> Tensor:
        """Returns the new trajectory that replaces tau.

        output [..., dims]: what the actor chose, in [-1, 1].
        """
        raise NotImplementedError


def moved(a: Tensor, v: Tensor) -> Tensor:
    """Returns a + 2 v, clipped to [-1, 1]. The factor makes every a in [-1, 1] reachable from every other in a step."""
    return (a + 2 * v).clamp(-1, 1)


@register("trajectory", "hold")
class HoldTrajectory(Trajectory):
    """TAAC: the action is repeated."""

    size = 1

    @config
    class Config:
        pass

    def __init__(self, cfg: Config):
        self.cfg = cfg

    def go_on(self, tau: Tensor) -> Tensor:
        return tau

    def start(self, output: Tensor, tau: Tensor) -> Tensor:
        return output


@register("trajectory", "linear")
class LinearTrajectory(Trajectory):
    """TAAC-L: tau = (a, v); the action changes by 2 v in every timestep.

    The actor chooses v, or with `inverse` the next action, from which v follows.
    """

    size = 2

    @config
    class Config:
        inverse: bool

    def __init__(self, cfg: Config):
        self.cfg = cfg

    def go_on(self, tau: Tensor) -> Tensor:
        a, v = tau.chunk(2, -1)
        return torch.cat([moved(a, v), v], -1)

    def start(self, output: Tensor, tau: Tensor) -> Tensor:
        a, _ = tau.chunk(2, -1)
        v = output
        if self.cfg.inverse:
            v = (output - a) / 2
        return torch.cat([moved(a, v), v], -1)


@register("trajectory", "quadratic")
class QuadraticTrajectory(Trajectory):
    """TAAC-Q: tau = (a, v, u); v changes by 2 u, and then the action by 2 v, in every timestep.

    A new trajectory begins at v = 0. The actor chooses u, or with `inverse` the next action, from which u follows.
    """

    size = 3

    @config
    class Config:
        inverse: bool

    def __init__(self, cfg: Config):
        self.cfg = cfg

    def go_on(self, tau: Tensor) -> Tensor:
        a, v, u = tau.chunk(3, -1)
        v = moved(v, u)
        return torch.cat([moved(a, v), v, u], -1)

    def start(self, output: Tensor, tau: Tensor) -> Tensor:
        a, _, _ = tau.chunk(3, -1)
        u = output
        if self.cfg.inverse:
            u = (output - a) / 4
        v = torch.zeros_like(a)
        return self.go_on(torch.cat([a, v, u], -1))
