"""Rewards of on-policy agents, one column each: the environment's, then intrinsic ones with returns of their own.

The environment's are weighed by `reward_weights` where they are several.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from rlrun.types import Batch, Bonus


class Column(NamedTuple):
    """One reward over time, in the order in which the estimators of functional/returns.py take it; [time, env]."""

    reward: Tensor
    value: Tensor
    next_value: Tensor
    terminated: Tensor
    done: Tensor
    gamma: float


def columns(rollout: Batch, value: Tensor, next_value: Tensor, gamma: float, bonuses: Sequence[Bonus]) -> list[Column]:
    """The columns of a rollout whose reward and values are [time, env], or [time, env, own + bonuses].

    `done` also ends where the next row is no transition. A bonus that is not episodic knows no other end: what follows
    the last step of an episode is the first of the next (arXiv 1810.12894, sec. 2.3).
    """
    terminated, weight = rollout["terminated"], rollout["weight"]
    gap = torch.zeros_like(terminated)
    gap[:-1] = weight[1:] == 0
    done = terminated | rollout["truncated"] | gap
    parts = (x.view(*weight.shape, -1).unbind(-1) for x in (rollout["reward"], value, next_value))
    every = [*zip(*parts, strict=True)]
    count = len(every) - len(bonuses)
    found = [Column(*own, terminated, done, gamma) for own in every[:count]]
    for bonus, (reward, v_tm1, v_t) in zip(bonuses, every[count:], strict=True):
        if bonus.episodic:
            found.append(Column(reward, v_tm1, v_t, terminated, done, bonus.gamma))
        else:
            following = torch.cat([torch.where(gap[:-1], v_t[:-1], v_tm1[1:]), v_t[-1:]])
            found.append(Column(reward, v_tm1, following, torch.zeros_like(gap), gap, bonus.gamma))
    return found


def mixed(advantages: Sequence[Tensor], bonuses: Sequence[Bonus], weights: Tensor | None = None) -> Tensor:
    """The environment's advantages, weighed, plus those of the bonuses times their coefficients. No weights: it has
    one."""
    count = len(advantages) - len(bonuses)
    own = advantages[0] if weights is None else torch.stack([*advantages[:count]], -1) @ weights
    return sum((bonus.coef * extra for bonus, extra in zip(bonuses, advantages[count:], strict=True)), start=own)
