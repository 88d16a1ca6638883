"""One on-policy rollout [time, env, ...], and the minibatches made of it."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from rlrun import memory
from rlrun.core.random import Stream
from rlrun.nested import flat, index, mapped, selected, stack
from rlrun.networks.inputs import leaves
from rlrun.types import Batch, Spec, Step


def next_steps(rollout: Batch, start: Tensor, length: int) -> Batch:
    """Returns `length` consecutive steps, from each given one on, [length, batch, ...].

    start [batch]: flat indices row * num_envs + env. `mask` is 1 for as long as the episode goes on and is part of the
    rollout. Beyond, where it is 0, the last step is repeated.
    """
    weight = rollout["weight"]
    num_envs = weight.shape[1]
    done = rollout["terminated"] | rollout["truncated"]
    goes_on = torch.zeros_like(weight)  # 1 where the next row continues the episode
    goes_on[:-1] = ~done[:-1] & (weight[1:] > 0)
    goes_on = goes_on.flatten()

    step_index = [start]
    mask = [(weight.flatten()[start] > 0).to(weight)]
    for _ in range(length - 1):
        has_next = goes_on[step_index[-1]]
        step_index.append(step_index[-1] + num_envs * has_next.long())
        mask.append(mask[-1] * has_next)
    steps: Batch = index(flat(rollout), torch.stack(step_index))
    steps["mask"] = torch.stack(mask)
    return steps


def check_fits(
    setting: str,
    steps: int,
    spec: Spec,
    device: torch.device,
) -> None:
    """Raises ConfigError where a rollout of so many vector steps takes more memory than there is.

    Observations and their successors count, which every rollout holds.
    """
    obs_bytes = 0
    for _, leaf in leaves(spec.obs):
        itemsize = 1 if leaf.dtype == "uint8" else 4
        obs_bytes += math.prod(leaf.shape or ()) * itemsize
    rollout_bytes = 2 * obs_bytes * steps * spec.num_envs
    memory.check_fits(f"{setting}, env.num_envs={spec.num_envs}", rollout_bytes, device)


class Rollout:
    """Collects vector steps for an on-policy agent, which gets them as `batch()`."""

    def __init__(self) -> None:
        self.rows: list[Batch] = []

    def add(
        self,
        obs: Any,
        action: Tensor,
        step: Step,
        extras: Batch,
        first: Tensor,
    ) -> None:
        """Adds one vector step; `first` marks rows that start an episode.

        `next_obs` is the true successor, also where an episode ended.
        """
        row = {
            "obs": obs,
            "action": action,
            "reward": step.reward,
            "terminated": step.terminated,
            "truncated": step.truncated,
            "next_obs": step.final_obs,
            "weight": step.weight,
            "first": first,
        }
        self.rows.append(row | extras)

    def batch(self) -> Batch:
        """Returns every field [time, env, ...]."""
        return stack(self.rows)


def minibatches(
    rollout: Batch,
    epochs: int,
    size: int | None,
    stream: Stream | None,
    length: int | None = 1,
) -> Iterator[list[Batch]]:
    """Yields one list of minibatches of `size` rows per epoch, each epoch shuffled anew; every row is used once an
    epoch.

    length 1: single steps [size, ...], masked ones (weight 0) left out. Longer, for recurrent agents: [length,
    size / length, ...], sequences cut from every time line, one after the other, masked steps included; where a time
    line is no multiple of the length, minibatches of its last rows are shorter. length None: whole time lines.

    The last minibatch is smaller where the size does not divide the rows, unless masked steps can pad it: compiled
    kernels should not meet other shapes in every rollout. size None: all in one. No stream: in the order stored.
    """
    if length == 1:
        dim = 0
        blocks = [flat(rollout)]
    else:
        dim = 1
        blocks = list(sequences(rollout, length))
    selections = [rows_and_padding(block["weight"], size, dim) for block in blocks]
    for _ in range(epochs):
        epoch: list[Batch] = []
        for block, (rows, padding) in zip(blocks, selections, strict=True):
            epoch += shuffled(block, rows, padding, size, stream, dim)
        yield epoch


def rows_and_padding(weight: Tensor, size: int | None, dim: int) -> tuple[Tensor, Tensor]:
    """Returns the indices of the rows to learn from along a dimension, and of those that pad the last minibatch.

    Single steps (dim 0) are learned from where they are not masked, and masked ones pad; sequences (dim 1) all count.
    """
    if dim == 1:
        sequence_index = torch.arange(weight.shape[1], device=weight.device)
        return sequence_index, sequence_index[:0]
    used = (weight > 0).nonzero().squeeze(-1)
    masked = (weight <= 0).nonzero().squeeze(-1)
    if size is None or len(masked) == 0:
        return used, masked[:0]
    num_missing = -len(used) % size
    num_copies = math.ceil(num_missing / len(masked))
    padding = masked.repeat(num_copies)[:num_missing]
    return used, padding


def sequences(rollout: Batch, length: int | None) -> Iterator[Batch]:
    """Yields sequences [length, sequences, ...], and then the shorter ones left at the end of every time line."""
    time = len(rollout["weight"])
    if length is None or length > time:
        length = time
    remainder = time % length
    whole = time - remainder

    def cut(part: Tensor) -> Tensor:
        return part[:whole].unflatten(0, (-1, length)).transpose(0, 1).flatten(1, 2)

    yield mapped(cut, rollout)
    if remainder:
        yield index(rollout, slice(whole, time))


def shuffled(
    data: Batch,
    rows: Tensor,
    padding: Tensor,
    size: int | None,
    stream: Stream | None,
    dim: int,
) -> Iterator[Batch]:
    """Yields minibatches of `size` rows, split along a dimension."""
    if size is None:
        num_selected = len(rows)
    elif dim == 0:
        num_selected = size
    else:
        num_selected = size // len(data["weight"])
    num_selected = max(1, num_selected)
    order = rows
    if stream is not None:
        order = rows[stream.permutation(len(rows))]
    order = torch.cat([order, padding])
    for start in range(0, len(order), num_selected):
        yield selected(data, order[start : start + num_selected], dim)
