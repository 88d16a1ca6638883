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


def ahead(rollout: Batch, start: Tensor, length: int) -> Batch:
    """Steps in a row [length, batch, ...] from each of these on, numbers [batch] of row * num_envs + env.

    `mask` is 1 while their episodes go on and are there. Past the end, where it is 0, the last step is repeated.
    """
    weight, ended = rollout["weight"], rollout["terminated"] | rollout["truncated"]
    goes_on = torch.zeros_like(weight)
    goes_on[:-1] = ~ended[:-1] & (weight[1:] > 0)
    number, mask = [start], [(weight.flatten()[start] > 0).to(weight)]
    for _ in range(length - 1):
        more = goes_on.flatten()[number[-1]]
        number.append(number[-1] + weight.shape[1] * more.long())
        mask.append(mask[-1] * more)
    rows: Batch = index(flat(rollout), torch.stack(number))
    return rows | {"mask": torch.stack(mask)}


def check_fits(setting: str, steps: int, spec: Spec, device: torch.device) -> None:
    """ConfigError where a rollout of so many vector steps takes more memory than there is. Counted are observations
    and their successors, which every rollout holds."""
    shapes = [(leaf.shape or (), 1 if leaf.dtype == "uint8" else 4) for _, leaf in leaves(spec.obs)]
    observation = sum(math.prod(shape) * size for shape, size in shapes)
    memory.check_fits(f"{setting}, env.num_envs={spec.num_envs}", 2 * observation * steps * spec.num_envs, device)


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
    rollout: Batch, epochs: int, size: int | None, stream: Stream | None, length: int | None = 1
) -> Iterator[list[Batch]]:
    """One list of minibatches of `size` rows per epoch, each epoch shuffled anew; every row is used once an epoch.

    length 1: single steps [size, ...], those of weight 0 left out. Longer, for recurrent agents: [length,
    size / length, ...], sequences cut from every time line, one after the other; rows of weight 0 stay, and where a
    time line is no multiple of the length, minibatches of its last rows are shorter. length None: whole time lines.
    The last minibatch is smaller where the size does not divide the rows, unless rows of weight 0 can fill it up: who
    compiles for shapes should not meet others in every rollout. size None: all in one. No stream: in the order stored.
    """
    blocks = [flat(rollout)] if length == 1 else [*sequences(rollout, length)]
    dim = int(length != 1)
    chosen = [used_and_filling(block["weight"], size, dim) for block in blocks]
    for _ in range(epochs):
        yield [
            batch
            for block, (used, filling) in zip(blocks, chosen, strict=True)
            for batch in shuffled(block, used, filling, size, stream, dim)
        ]


def used_and_filling(weight: Tensor, size: int | None, dim: int) -> tuple[Tensor, Tensor]:
    """Numbers of the rows to learn from along a dimension, and of those that make the last minibatch a whole one."""
    if dim:
        return torch.arange(weight.shape[dim], device=weight.device), weight.new_empty(0, dtype=torch.long)
    used, rest = (weight > 0).nonzero().squeeze(-1), (weight <= 0).nonzero().squeeze(-1)
    short = -len(used) % size if size is not None and len(rest) else 0
    return used, rest.repeat(-(-short // max(len(rest), 1)))[:short]


def sequences(rollout: Batch, length: int | None) -> Iterator[Batch]:
    """[length, sequences, ...], and what is left at the end of every time line."""
    time = len(rollout["weight"])
    length = min(length or time, time)
    whole = time - time % length

    def cut(part: Tensor) -> Tensor:
        return part[:whole].unflatten(0, (-1, length)).transpose(0, 1).flatten(1, 2)

    yield mapped(cut, rollout)
    if whole < time:
        yield index(rollout, slice(whole, time))


def shuffled(
    data: Batch, used: Tensor, filling: Tensor, size: int | None, stream: Stream | None, dim: int
) -> Iterator[Batch]:
    """Parts of `size` rows, split along a dimension."""
    if size is None:
        many = len(used)
    elif dim == 0:
        many = size
    else:
        many = size // len(data["weight"])
    many = max(1, many)
    order = used if stream is None else used[stream.permutation(len(used))]
    order = torch.cat([order, filling])
    for i in range(0, len(order), many):
        yield selected(data, order[i : i + many], dim)
