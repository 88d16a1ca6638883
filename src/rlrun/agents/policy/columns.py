"""Reward columns of on-policy agents: the environment's rewards, then intrinsic rewards, each with its own returns."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from rlrun.types import Batch, Bonus, Discount


class Column(NamedTuple):
    """The arguments that functional/returns.py takes for one reward column, in that order; tensors are [time, env]."""

    reward: Tensor
    value: Tensor
    next_value: Tensor
    terminated: Tensor
    done: Tensor
    gamma: float | Tensor  # discount of each row


def columns(
    rollout: Batch, value: Tensor, next_value: Tensor, gamma: Discount, bonuses: Sequence[Bonus]
) -> list[Column]:
    """Returns the columns of a rollout whose rewards and values are [time, env], or [time, env, rewards + bonuses].

    `done` is also true before each masked step (weight 0). The returns of a non-episodic bonus end only before a masked
    step; otherwise they continue across episodes (arXiv 1810.12894, sec. 2.3). A held action is discounted by
    gamma^n_steps.
    """
    terminated = rollout["terminated"]
    weight = rollout["weight"]
    gap = torch.zeros_like(terminated)
    gap[:-1] = weight[1:] == 0
    done = terminated | rollout["truncated"] | gap
    rewards = rollout["reward"].view(*weight.shape, -1).unbind(-1)
    values = value.view(*weight.shape, -1).unbind(-1)
    next_values = next_value.view(*weight.shape, -1).unbind(-1)

    n_steps = rollout.get("n_steps", 1)
    found = []
    num_own = len(rewards) - len(bonuses)
    gammas = gamma
    if not isinstance(gammas, tuple):
        gammas = (gammas,) * num_own
    for i, own_gamma in enumerate(gammas):
        discount = own_gamma**n_steps
        found.append(Column(rewards[i], values[i], next_values[i], terminated, done, discount))
    for i, bonus in enumerate(bonuses, num_own):
        discount = bonus.gamma**n_steps
        if bonus.episodic:
            found.append(Column(rewards[i], values[i], next_values[i], terminated, done, discount))
            continue
        v_tm1 = values[i]
        v_t = next_values[i]
        # the next row gives the value of the successor, even if it begins another episode
        following = torch.where(gap[:-1], v_t[:-1], v_tm1[1:])
        across_episodes = torch.cat([following, v_t[-1:]])
        never = torch.zeros_like(gap)
        found.append(Column(rewards[i], v_tm1, across_episodes, terminated=never, done=gap, gamma=discount))
    return found


def combined(advantages: Sequence[Tensor], bonuses: Sequence[Bonus], weights: Tensor | None = None) -> Tensor:
    """Returns the environment's advantages, summed with `weights`, plus each bonus's advantage times its coefficient.

    `weights` is None if the environment has a single reward.
    """
    num_own = len(advantages) - len(bonuses)
    total = advantages[0]
    if weights is not None:
        own = torch.stack([*advantages[:num_own]], -1)
        total = own @ weights
    for bonus, advantage in zip(bonuses, advantages[num_own:], strict=True):
        total = total + bonus.coef * advantage
    return total
