"""Discrete actions: the sizes of their decisions, legal choices, and distributions over them.

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
    """Returns the number of choices of every decision of a discrete action; of other actions an empty list."""
    match space:
        case spaces.Discrete():
            return [int(space.n)]
        case spaces.MultiDiscrete():
            return [int(n) for n in space.nvec]
        case spaces.MultiBinary():
            return [2] * int(space.shape[0])
    return []


def legal(scores: Tensor, obs: Any) -> Tensor:
    """Returns scores of one decision [..., choices], -inf where the observation's mask forbids it."""
    mask = _action_mask(obs)
    if mask is None:
        return scores
    return masked(scores, mask)


def distribution(space: Space, logits: Tensor, obs: Any) -> Categorical | Independent:
    """Returns the distribution over the legal actions of a discrete space; logits [..., choices of all decisions]."""
    if isinstance(space, spaces.Discrete):
        return Categorical(legal(logits, obs))
    sizes = choices(space)
    parts = logits.split(sizes, -1)
    mask = _action_mask(obs)
    if mask is not None:
        masks = mask.split(sizes, -1)
        parts = tuple(map(masked, parts, masks))
    padded = []
    for part, size in zip(parts, sizes, strict=True):
        missing = max(sizes) - size
        padded.append(F.pad(part, (0, missing), value=float("-inf")))
    return Independent(Categorical(torch.stack(padded, -2)))


def _action_mask(obs: Any) -> Tensor | None:
    if not isinstance(obs, dict):
        return None
    return obs.get(MASK)
