"""Continuous goals: each episode has a random vector as its goal, the skill of `algo.intrinsic=diayn`.

In evaluation, goals are the points of a Kronecker sequence, which fill the space evenly whatever their number (Roberts
2018, "The unreasonable effectiveness of quasirandom sequences"): frac(1/2 + n a) with a_j = g^-j, where g is the
positive root of g^(dims + 1) = g + 1.
"""

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from rlrun.addons.goals.goals import EpisodeGoals
from rlrun.core.parts import Parts
from rlrun.settings import Units, config, register
from rlrun.types import Spec


class ContinuousGoals(EpisodeGoals):
    """Base class of goals that are vectors."""

    @config
    class Config:
        dims: Units

    def __init__(self, cfg: Config, spec: Spec, parts: Parts, bound: float):
        super().__init__(spec, parts, spaces.Box(-bound, bound, (cfg.dims,), np.float32))
        self.dims = cfg.dims

    def spread(self, number: Tensor) -> Tensor:
        """Returns points in (0, 1)^dims, [rows, dims]."""
        root = 2.0
        for _ in range(60):
            root = (1 + root) ** (1 / (self.dims + 1))
        steps = root ** -torch.arange(1, self.dims + 1, dtype=torch.float64, device=number.device)
        return (0.5 + number.unsqueeze(-1) * steps).frac()


@register("goals", "gaussian")
class GaussianGoals(ContinuousGoals):
    """Draws vectors from the standard normal distribution."""

    def __init__(self, cfg: ContinuousGoals.Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts, np.inf)

    def drawn(self, rows: int) -> Tensor:
        return self.draw.normal(rows, self.dims)

    def numbered(self, number: Tensor) -> Tensor:
        return torch.special.ndtri(self.spread(number)).to(torch.float32)


@register("goals", "box")
class BoxGoals(ContinuousGoals):
    """Draws vectors uniformly from [-1, 1]^dims."""

    def __init__(self, cfg: ContinuousGoals.Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts, 1.0)

    def drawn(self, rows: int) -> Tensor:
        return 2 * self.draw.uniform(rows, self.dims) - 1

    def numbered(self, number: Tensor) -> Tensor:
        return (2 * self.spread(number) - 1).to(torch.float32)
