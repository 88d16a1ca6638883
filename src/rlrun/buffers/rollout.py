"""One on-policy rollout [time, env, ...], and the minibatches made of it."""

from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor

from rlrun.core.random import Stream
from rlrun.types import Batch, Step


def stack(rows: list[Any]) -> Any:
    """Tensors, or equally nested dicts of tensors, along a new first dimension."""
    if isinstance(rows[0], dict):
        return {key: stack([row[key] for row in rows]) for key in rows[0]}
    return torch.stack(rows)


def index(batch: Any, where: Any) -> Any:
    """The same rows of every tensor in a nested batch."""
    if isinstance(batch, dict):
        return {key: index(value, where) for key, value in batch.items()}
    return batch[where]


def flat(batch: Any) -> Any:
    """[time, env, ...] to [time * env, ...]."""
    if isinstance(batch, dict):
        return {key: flat(value) for key, value in batch.items()}
    return batch.flatten(0, 1)


class Rollout:
    """Collects vector steps; `batch()` is what an on-policy agent learns from. Emptied by the tick that filled it."""

    def __init__(self) -> None:
        self.rows: list[Batch] = []

    def add(self, obs: Any, action: Tensor, step: Step, extras: Batch, first: Tensor) -> None:
        """`next_obs` is the true successor, also where an episode ended; `first` marks rows that start one."""
        self.rows.append(
            {
                "obs": obs, "action": action, "reward": step.reward, "terminated": step.terminated,
                "truncated": step.truncated, "next_obs": step.final_obs, "weight": step.weight, "first": first,
                **extras,
            }
        )  # fmt: skip

    def batch(self) -> Batch:
        """Every field [time, env, ...]."""
        return stack(self.rows)


def minibatches(
    rollout: Batch, epochs: int, size: int, stream: Stream, by: Literal["step", "env"] = "step"
) -> Iterator[list[Batch]]:
    """One list of minibatches per epoch, each epoch shuffled anew; every row is used once an epoch.

    by="step": [size, ...] of single steps; by="env": whole time lines [time, size, ...], for recurrent agents.
    The last minibatch is smaller where the size does not divide the rows.
    """
    data = flat(rollout) if by == "step" else rollout
    dim = 0 if by == "step" else 1
    time, envs = rollout["weight"].shape[:2]
    count = time * envs if by == "step" else envs
    for _ in range(epochs):
        order = stream.permutation(count)
        if dim == 0:
            shuffled = index(data, order)
            yield [index(shuffled, slice(i, i + size)) for i in range(0, count, size)]
        else:
            yield [index(data, (slice(None), part)) for part in order.split(size)]
