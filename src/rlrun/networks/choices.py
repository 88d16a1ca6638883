"""Discrete action spaces: the number of choices per action dimension, action masks, and action distributions.

The logits of all action dimensions are concatenated along the last axis. Each dimension of MultiBinary has the choices
0 and 1. The choices of a mixed action are those of its discrete parts. The action mask is an entry of the observation
(`types.MASK`).
"""

from typing import Any

import torch
from gymnasium import Space, spaces
from torch import Tensor
from torch.nn import functional as F

from rlrun.functional.distributions import Categorical, Independent, masked
from rlrun.spaces import MixedSpace, choices
from rlrun.types import MASK, Obs


def legal(scores: Tensor, obs: Obs) -> Tensor:
    """Returns the scores [..., choices] of a Discrete action, with -inf for choices that the action mask forbids."""
    mask = _action_mask(obs)
    if mask is None:
        return scores
    return masked(scores, mask)


def distribution(space: Space, logits: Tensor, obs: Obs) -> Categorical | Independent:
    """Returns the distribution over the legal choices of a space; logits [..., sum(choices(space))]."""
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


def uniform(space: Space, num_envs: int, obs: Obs, device: torch.device) -> Categorical | Independent:
    """Returns the uniform distribution over the legal choices of a space, for each environment."""
    if isinstance(space, MixedSpace):
        space = space.discrete
    logits = torch.zeros(num_envs, sum(choices(space)), device=device)
    return distribution(space, logits, obs)


def _action_mask(obs: Any) -> Tensor | None:
    if not isinstance(obs, dict):
        return None
    return obs.get(MASK)
