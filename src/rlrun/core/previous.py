"""What agents and add-ons read of the previous step: its executed action, and the reward of the environment."""

from collections.abc import Iterable

import torch
from torch import Tensor

from rlrun.types import Batch, Spec, Step

ENTRIES = {"action": "executed", "reward": "reward"}  # what can be read -> the entry of the step that holds it


def of_step(step: Step, names: Iterable[str]) -> Batch:
    """Returns the extras `carry.action` and `carry.reward` of a step, those of them that `names` lists.

    step: as the environment returned it.
    """
    return {f"carry.{name}": step[ENTRIES[name]] for name in names}


def remembered(carry: Batch, name: str, initial: Tensor) -> Tensor:
    """Returns the extra `carry.<name>` of the previous step, [num_envs, ...], or `initial` where an episode starts."""
    first = carry["first"]
    per_row = first.view(-1, *[1] * (initial.dim() - 1))
    return torch.where(per_row, initial, carry.get(f"carry.{name}", initial))


def reward_shape(spec: Spec) -> tuple[int, ...]:
    """Returns the shape of the environment's own reward in one environment."""
    if spec.own_rewards == 1:
        return ()
    return (spec.own_rewards,)
