"""Rewards of on-policy agents, a column each: those of the environment, then intrinsic ones with their own returns."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from rlrun.types import Batch, Bonus


class Column(NamedTuple):
    """One reward over time, in the order of the parameters of functional/returns.py; [time, env]."""

    reward: Tensor
    value: Tensor
    next_value: Tensor
    terminated: Tensor
    done: Tensor
    gamma: float


def columns(rollout: Batch, value: Tensor, next_value: Tensor, gamma: float, bonuses: Sequence[Bonus]) -> list[Column]:
    """The columns of a rollout whose rewards and values are [time, env], or [time, env, rewards + bonuses].

    `done` also marks steps before a masked step (weight 0). The returns of a bonus that is not episodic end only there:
    the last step of an episode is followed by the first of the next (arXiv 1810.12894, sec. 2.3).
    """
    terminated = rollout["terminated"]
    weight = rollout["weight"]
    gap = torch.zeros_like(terminated)
    gap[:-1] = weight[1:] == 0
    done = terminated | rollout["truncated"] | gap
    rewards = rollout["reward"].view(*weight.shape, -1).unbind(-1)
    values = value.view(*weight.shape, -1).unbind(-1)
    next_values = next_value.view(*weight.shape, -1).unbind(-1)

    found = []
    num_own = len(rewards) - len(bonuses)
    for i in range(num_own):
        found.append(Column(rewards[i], values[i], next_values[i], terminated, done, gamma))
    for i, bonus in enumerate(bonuses, num_own):
        if bonus.episodic:
            found.append(Column(rewards[i], values[i], next_values[i], terminated, done, bonus.gamma))
        else:
            v_tm1 = values[i]
            v_t = next_values[i]
            following = torch.where(gap[:-1], v_t[:-1], v_tm1[1:])
            across_episodes = torch.cat([following, v_t[-1:]])
            never = torch.zeros_like(gap)
            found.append(Column(rewards[i], v_tm1, across_episodes, never, gap, bonus.gamma))
    return found


def mixed(advantages: Sequence[Tensor], bonuses: Sequence[Bonus], weights: Tensor | None = None) -> Tensor:
    """The weighted sum of the environment's advantages, plus those of the bonuses times their coefficients. Without
    weights the environment has one reward."""
    num_own = len(advantages) - len(bonuses)
    total = advantages[0]
    if weights is not None:
        own = torch.stack([*advantages[:num_own]], -1)
        total = own @ weights
    for bonus, advantage in zip(bonuses, advantages[num_own:], strict=True):
        total = total + bonus.coef * advantage
    return total
