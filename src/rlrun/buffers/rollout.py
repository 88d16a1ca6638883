"""Collection of one on-policy rollout [time, env, ...], and its division into minibatches."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from rlrun import memory
from rlrun.core.random import Stream
from rlrun.nested import flat, index, mapped, selected, stack
from rlrun.networks.inputs import leaves
from rlrun.types import Batch, Spec, Step


def next_steps(rollout: Batch, start: Tensor, length: int) -> Batch:
    """Returns sequences of `length` consecutive steps that begin at the given steps, [length, batch, ...].

    start [batch]: flat indices row * num_envs + env of the first steps. `mask` is 1 until the episode or the rollout
    ends; after that it is 0 and the last step is repeated.
    """
    weight = rollout["weight"]
    num_envs = weight.shape[1]
    done = rollout["terminated"] | rollout["truncated"]
    goes_on = torch.zeros_like(weight)  # 1 where the next row continues the episode
    is_valid = weight[1:] > 0
    goes_on[:-1] = ~done[:-1] & is_valid
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


def with_next_action(batch: Batch, n_step: int, gamma: float) -> Batch:
    """Returns transitions [batch, ...] with n-step returns, and with the action that the trajectory takes after them.

    batch: sequences [n_step + 1, batch, ...] from replay, or a rollout [time, env, ...], each of whose steps begins a
    transition. `continues` is 1 where `next_action` is known, and 0 where the episode or the data end before it.
    """
    if "n_steps" not in batch:
        batch = _n_step_sequences(batch, n_step, gamma)
    n_steps = batch["n_steps"][0]
    next_step = n_steps.long()
    column = torch.arange(len(n_steps), device=n_steps.device)
    return {
        "obs": index(batch["obs"], 0),
        "action": batch["action"][0],
        "reward": batch["reward"][0],
        "n_steps": n_steps,
        "terminated": batch["terminated"][0],
        "next_obs": index(batch["next_obs"], (next_step - 1, column)),
        "next_action": batch["action"][next_step, column],
        "continues": batch["mask"][next_step, column],
        "weight": batch["weight"],
    }


def _n_step_sequences(rollout: Batch, n_step: int, gamma: float) -> Batch:
    """Returns sequences [n_step + 1, time * env, ...] that begin at every step, with the keys of those from replay.

    Only the first rows of `reward`, `n_steps` and `terminated` are returned, [1, time * env].
    """
    weight = rollout["weight"].flatten()
    start = torch.arange(len(weight), device=weight.device)
    steps = next_steps(rollout, start, n_step + 1)
    mask = steps["mask"][:n_step]
    n_steps = mask.sum(0).clamp(min=1)  # a masked step has weight 0
    exponent = torch.arange(n_step, device=weight.device).view(-1, 1)
    reward = (gamma**exponent * mask * steps["reward"][:n_step]).sum(0)
    terminated = steps["terminated"][n_steps.long() - 1, start].to(weight)
    summed = {"reward": reward, "n_steps": n_steps, "terminated": terminated}
    return steps | {name: value.unsqueeze(0) for name, value in summed.items()} | {"weight": weight}


def check_fits(
    setting: str,
    steps: int,
    spec: Spec,
    device: torch.device,
) -> None:
    """Raises ConfigError if a rollout of `steps` vector steps does not fit into memory.

    Counts only observations and successors, which take most of the memory. setting: the config key to name.
    """
    obs_bytes = 0
    for _, leaf in leaves(spec.obs):
        itemsize = 1 if leaf.dtype == "uint8" else 4
        obs_bytes += math.prod(leaf.shape or ()) * itemsize
    rollout_bytes = 2 * obs_bytes * steps * spec.num_envs
    memory.check_fits(f"{setting}, env.num_envs={spec.num_envs}", rollout_bytes, device)


class Rollout:
    """Collects vector steps and returns them as one batch for an on-policy agent."""

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
        """Adds one vector step. first [num_envs]: True where `obs` is the first observation of an episode.

        `next_obs` is set to the true successor, also where an episode ended.
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
        """Returns all steps as one batch [time, env, ...]."""
        return stack(self.rows)


def minibatches(
    rollout: Batch,
    epochs: int,
    size: int | None,
    stream: Stream | None,
    length: int | None = 1,
) -> Iterator[list[Batch]]:
    """Yields one list of minibatches per epoch. Every row is used once per epoch, in a new random order.

    size: number of rows per minibatch; None puts all rows into one. stream: None keeps the stored order.

    length 1: minibatches [size, ...] of single steps, without masked steps (weight 0).
    length > 1, for recurrent agents: minibatches [length, size / length, ...] of sequences, masked steps included. If
    `length` does not divide the timesteps of the rollout, the last timesteps form shorter sequences in separate
    minibatches.
    length None: minibatches of whole rollouts, [time, size / time, ...].

    If the size does not divide the number of single steps, masked steps pad the last minibatch, because a kernel is
    compiled again for every new shape. Without masked steps in the rollout, the last minibatch is smaller. So is the
    last minibatch of sequences.
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


def per_step(
    function: Callable[[Batch], Tensor],
    rollout: Batch,
    keys: Sequence[str],
    length: int | None = 1,
) -> Tensor:
    """Returns a value of every step, [time, env], from a function of batches of steps.

    The function is called with these keys of the rollout: of single steps [time * env, ...], or of sequences
    [length, sequences, ...] as in `minibatches`, which are in stored order. It returns a value for every step.
    """
    needed = {key: rollout[key] for key in (*keys, "weight")}
    time, num_envs = rollout["weight"].shape
    if length == 1:
        return function(flat(needed)).view(time, num_envs)
    rows = []
    for block in sequences(needed, length):
        pieces = function(block).unflatten(1, (-1, num_envs))  # [length, pieces, env]
        rows.append(pieces.transpose(0, 1).flatten(0, 1))
    return torch.cat(rows)


def rows_and_padding(weight: Tensor, size: int | None, dim: int) -> tuple[Tensor, Tensor]:
    """Returns the indices of the rows to learn from, and of the rows that pad the last minibatch.

    dim 0: rows are single steps; unmasked steps are learned from, and masked steps serve as padding. dim 1: rows are
    sequences; all are learned from, without padding.
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
    """Yields a batch of sequences [length, sequences, ...], then a batch of shorter sequences if timesteps remain."""
    time = len(rollout["weight"])
    if length is None or length > time:
        length = time
    remainder = time % length
    whole = time - remainder

    def cut(part: Tensor) -> Tensor:
        pieces = part[:whole].unflatten(0, (-1, length))  # [pieces, length, env, ...]
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
    """Yields minibatches of `size` timesteps: first the rows in random order, then the padding.

    Rows lie along dimension `dim` of the data. Without a stream they keep their order.
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
        yield selected(data, order[start : start + num_selected], dim)
