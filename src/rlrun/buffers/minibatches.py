"""Division of a rollout into minibatches of steps or of sequences."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from rlrun.core.random import Stream
from rlrun.errors import ConfigError
from rlrun.indexed import dense
from rlrun.nested import index, mapped
from rlrun.tensors import flat, joined, selected, unflattened
from rlrun.types import Batch

T = TypeVar("T")


def minibatches(
    rollout: Batch,
    epochs: int,
    size: int | None,
    stream: Stream | None,
    length: int = 1,
    num: int | None = None,
) -> Iterator[list[Batch]]:
    """Yields one list of minibatches per epoch, each epoch in a new random order.

    size: number of steps per minibatch. If it is None, num is the number of minibatches; if both are None, all steps
    are in one. stream: None keeps the stored order.

    length 1: minibatches [size, ...] of single steps. Every step that is not masked is used once per epoch; masked
    steps (weight 0) only pad the last minibatch.
    length > 1, for recurrent agents: minibatches [length, size / length, ...] of sequences, masked steps included. If
    `length` does not divide the timesteps of the rollout, the last timesteps form shorter sequences in separate
    minibatches.

    With `num`, single steps are divided into minibatches of ceil(time * env / num) steps; there are fewer than `num` if
    many steps are masked. Sequences are divided by environments: each minibatch holds all sequences of env / num
    environments, and shorter sequences again follow in separate minibatches.

    The last minibatch is smaller if the steps do not suffice.
    """
    if size is None and num is not None:
        if length != 1:
            yield from minibatches_by_environment(rollout, epochs, num, stream, length)
            return
        size = math.ceil(rollout["weight"].numel() / num)
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


def minibatches_by_environment(
    rollout: Batch, epochs: int, num: int, stream: Stream | None, length: int
) -> Iterator[list[Batch]]:
    """Yields one list of minibatches per epoch, each with all sequences of an equal number of environments."""
    weight = rollout["weight"]
    num_envs = weight.shape[1]
    order = torch.arange(num_envs, device=weight.device)
    blocks = list(sequences(rollout, length))
    for _ in range(epochs):
        if stream is not None:
            order = stream.permutation(num_envs)
        epoch: list[Batch] = []
        for block in blocks:
            sequence_index = torch.arange(block["weight"].shape[1], device=weight.device).view(-1, num_envs)
            for envs in order.chunk(num):
                epoch.append(dense(selected(block, sequence_index[:, envs].flatten(), 1)))
        yield epoch


def check_division(size: int | None, num: int | None, sequence_length: int, num_envs: int) -> None:
    """Raises ConfigError if both `minibatch_size` and `num_minibatches` are set, or if sequences are to be divided by
    environments that cannot be divided evenly."""
    if num is None:
        return
    given = f"algo.num_minibatches={num}"
    if size is not None:
        raise ConfigError(f"{given}: contradicts algo.minibatch_size={size}; set algo.minibatch_size=null")
    if sequence_length > 1 and num_envs % num:
        raise ConfigError(f"{given}: must divide env.num_envs={num_envs}, as sequences are divided by environments")


def per_step(
    function: Callable[[Batch], T],
    rollout: Batch,
    keys: Sequence[str],
    length: int = 1,
) -> T:
    """Returns what a function computes of every step, a tensor or a dict of tensors, each [time, env, ...].

    The function gets a batch with `keys` and `weight`: all steps [time * env, ...] for length 1, otherwise all
    sequences [length, sequences, ...], and then the shorter ones at the end of the rollout. It returns tensors with an
    entry for every step of the batch.
    """
    needed = {key: rollout[key] for key in (*keys, "weight")}
    time, num_envs = rollout["weight"].shape
    if length == 1:
        return unflattened(function(flat(needed)), time, num_envs)
    rows = []
    for block in sequences(needed, length):
        rows.append(mapped(lambda value: _time_lines(value, num_envs), function(block)))
    return joined(rows)


def _time_lines(value: Tensor, num_envs: int) -> Tensor:
    """Returns a value of sequences [length, pieces * env, ...] as [pieces * length, env, ...]."""
    pieces = value.unflatten(1, (-1, num_envs))  # [length, pieces, env, ...]
    return pieces.transpose(0, 1).flatten(0, 1)


def rows_and_padding(weight: Tensor, size: int | None, dim: int) -> tuple[Tensor, Tensor]:
    """Returns the indices of the rows to learn from, and of the rows that pad the last minibatch.

    dim 0: rows are single steps. Masked steps, repeated if necessary, fill the last minibatch up to `size`, because a
    kernel is compiled again for every new shape. Without masked steps there is no padding. dim 1: rows are sequences;
    all are learned from, without padding.
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


def sequences(rollout: Batch, length: int) -> Iterator[Batch]:
    """Yields a batch of sequences [length, sequences, ...], then a batch of shorter sequences if timesteps remain.

    A length above that of the rollout gives whole time lines, [time, env, ...].
    """
    time = len(rollout["weight"])
    length = min(length, time)
    remainder = time % length
    whole = time - remainder

    def cut(values: Tensor) -> Tensor:
        pieces = values[:whole].unflatten(0, (-1, length))  # [pieces, length, env, ...]
        return pieces.transpose(0, 1).flatten(1, 2)

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
    """Yields minibatches of `size` steps: first of the rows in random order, then of the padding.

    Rows lie along dimension `dim` of the data. Without a stream they keep their order. The last minibatch may be
    smaller.
    """
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
        yield dense(selected(data, order[start : start + num_selected], dim))
