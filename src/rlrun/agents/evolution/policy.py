"""What is searched: the weights of a deterministic policy, and noise to try around them."""

from typing import Any

import torch
from gymnasium.spaces import Discrete
from torch import Tensor

from rlrun.core.random import Stream
from rlrun.networks.choices import legal
from rlrun.networks.heads import Head
from rlrun.networks.stacked import Stacked
from rlrun.types import Spec


class StackedPolicy(Stacked):
    """Actions [num_envs, ...] for obs [num_envs, ...], split evenly over params [members, P].

    The best of discrete actions, tanh of the outputs where actions are bounded, else the outputs themselves.
    """

    def __init__(self, spec: Spec, parts: Any):
        space: Any = spec.action
        discrete = isinstance(space, Discrete)
        super().__init__(Head(parts.torso(members=1), int(space.n) if discrete else space.shape[0], members=1))
        self.discrete, self.bounded = discrete, not discrete and space.is_bounded()

    def forward(self, obs: Any, params: Tensor) -> Tensor:
        out = super().forward(obs, params)
        if self.discrete:
            return legal(out, obs).argmax(-1)
        return torch.tanh(out) if self.bounded else out


def directions(stream: Stream, population: int, size: int, antithetic: bool, orthogonal: bool) -> Tensor:
    """Standard normal [population, size], each row by itself.

    Orthogonal: as many rows as there are columns at right angles to each other, then the next (arXiv 1804.02395).
    Antithetic: the second half is the first one mirrored.
    """
    drawn = stream.normal((population + 1) // 2 if antithetic else population, size)
    if orthogonal:
        drawn = torch.cat([at_right_angles(rows) for rows in drawn.split(size)])
    return torch.cat([drawn, -drawn])[:population] if antithetic else drawn


def at_right_angles(rows: Tensor) -> Tensor:
    """Rows [n, P], n <= P: each turns away from those before it and keeps its length, the first stays."""
    q, r = torch.linalg.qr(rows.T)
    return (q * r.diagonal().sign() * torch.linalg.vector_norm(rows, dim=1)).T
