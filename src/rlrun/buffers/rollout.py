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
    rollout: Batch, epochs: int, size: int | None, stream: Stream, by: Literal["step", "env"] = "step"
) -> Iterator[list[Batch]]:
    """One list of minibatches per epoch, each epoch shuffled anew; every row is used once an epoch.

    by="step": [size, ...] of single steps, those of weight 0 left out; by="env": whole time lines [time, size, ...],
    for recurrent agents, in which rows of weight 0 stay. The last minibatch is smaller where the size does not divide
    the rows; size None: one minibatch of all.
    """
    if by == "step":
        data = flat(rollout)
        rows = data["weight"].nonzero().squeeze(-1)
        count = len(rows)
    else:
        data, count = rollout, rollout["weight"].shape[1]
    size = size or max(1, count)
    for _ in range(epochs):
        order = stream.permutation(count)
        if by == "step":
            shuffled = index(data, rows[order])
            yield [index(shuffled, slice(i, i + size)) for i in range(0, count, size)]
        else:
            yield [index(data, (slice(None), part)) for part in order.split(size)]
