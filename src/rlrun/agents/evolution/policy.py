"""The deterministic policy whose weights evolution strategies search, and the noise that they add to the weights."""

from typing import Any

import torch
from gymnasium.spaces import Discrete
from torch import Tensor

from rlrun.core.parts import Parts
from rlrun.core.random import Stream
from rlrun.networks.choices import legal
from rlrun.networks.heads import Head
from rlrun.networks.stacked import Stacked
from rlrun.types import Obs, Spec


class StackedPolicy(Stacked):
    """Returns actions [num_envs, ...] for obs [num_envs, ...]; environments are split evenly over params [members, P].

    Discrete actions are the argmax of the outputs, bounded Box actions are tanh of the outputs, and unbounded Box
    actions are the outputs.
    """

    def __init__(self, spec: Spec, parts: Parts):
        space: Any = spec.action
        discrete = isinstance(space, Discrete)
        if discrete:
            outputs = int(space.n)
        else:
            outputs = space.shape[0]
        super().__init__(Head(parts.torso(members=1), outputs, members=1))
        self.discrete = discrete
        self.bounded = not discrete and space.is_bounded()

    def forward(self, obs: Obs, params: Tensor) -> Tensor:
        out = super().forward(obs, params)
        if self.discrete:
            return legal(out, obs).argmax(-1)
        if self.bounded:
            return torch.tanh(out)
        return out


def directions(stream: Stream, population: int, size: int, antithetic: bool, orthogonal: bool) -> Tensor:
    """Returns noise [population, size]; every row on its own is standard normal.

    orthogonal: the rows of each block of `size` rows are orthogonal to each other (arXiv 1804.02395). antithetic: the
    second half of the rows is the negative of the first half.
    """
    num_drawn = population
    if antithetic:
        num_drawn = (population + 1) // 2
    drawn = stream.normal(num_drawn, size)
    if orthogonal:
        drawn = torch.cat([orthogonalised(rows) for rows in drawn.split(size)])
    if antithetic:
        return torch.cat([drawn, -drawn])[:population]
    return drawn


def orthogonalised(rows: Tensor) -> Tensor:
    """Returns rows [n, P], n <= P, orthogonalised by Gram-Schmidt; every row keeps its norm."""
    q, r = torch.linalg.qr(rows.T)
    sign = r.diagonal().sign()
    norm = torch.linalg.vector_norm(rows, dim=1)
    return (q * sign * norm).T
