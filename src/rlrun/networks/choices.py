"""Discrete decisions: how many choices each has, which of them are legal, and a distribution over them.

The choices of several decisions lie side by side; MultiBinary decides between 0 and 1. A mask of actions is an entry of
the observation (`types.MASK`).
"""

from typing import Any

import torch
from gymnasium import Space, spaces
from torch import Tensor
from torch.nn import functional as F

from rlrun.functional.distributions import Categorical, Independent, masked
from rlrun.types import MASK


def choices(space: Space) -> list[int]:
    """How many each decision of a discrete action has; none in an action that is not discrete."""
    match space:
        case spaces.Discrete():
            return [int(space.n)]
        case spaces.MultiDiscrete():
            return [int(n) for n in space.nvec]
        case spaces.MultiBinary():
            return [2] * int(space.shape[0])
    return []


def legal(scores: Tensor, obs: Any) -> Tensor:
    """Scores of one decision [..., choices], -inf where the observation forbids it."""
    return masked(scores, obs[MASK]) if isinstance(obs, dict) and MASK in obs else scores


def distribution(space: Space, logits: Tensor, obs: Any) -> Categorical | Independent:
    """Over the actions of a discrete space that the observation allows; logits [..., choices of all decisions]."""
    if isinstance(space, spaces.Discrete):
        return Categorical(legal(logits, obs))
    sizes = choices(space)
    parts = logits.split(sizes, -1)
    if isinstance(obs, dict) and MASK in obs:
        parts = tuple(map(masked, parts, obs[MASK].split(sizes, -1)))
    padded = [F.pad(part, (0, max(sizes) - part.shape[-1]), value=float("-inf")) for part in parts]
    return Independent(Categorical(torch.stack(padded, -2)))
