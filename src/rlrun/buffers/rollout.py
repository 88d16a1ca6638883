"""Collection of one on-policy rollout [time, env, ...], and its division into minibatches."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from rlrun import memory
from rlrun.core.random import Stream
from rlrun.errors import ConfigError
from rlrun.indexed import Indexed, dense
from rlrun.nested import flat, index, joined, mapped, on, selected, stack
from rlrun.networks.inputs import is_image, leaves
from rlrun.types import Batch, Spec, Step


def continues(rollout: Batch) -> Tensor:
    """Returns whether the next row of the environment continues the episode, [time, env]; False in the last row.

    Where this is True, `next_obs` is the `obs` of the next row.
    """
    done = rollout["terminated"] | rollout["truncated"]
    is_valid = rollout["weight"] > 0
    goes_on = torch.zeros_like(done)
    goes_on[:-1] = ~done[:-1] & is_valid[1:]
    return goes_on


def next_steps(rollout: Batch, start: Tensor, length: int) -> Batch:
    """Returns sequences of `length` consecutive steps that begin at the given steps, [length, batch, ...].

    start [batch]: flat indices row * num_envs + env of the first steps. `mask` is 1 until the episode or the rollout
    ends; after that it is 0 and the last step is repeated.
    """
    weight = rollout["weight"]
    num_envs = weight.shape[1]
    goes_on = continues(rollout).flatten()
    step_index = [start]
    mask = [(weight.flatten()[start] > 0).to(weight)]
    for _ in range(length - 1):
        has_next = goes_on[step_index[-1]]
        step_index.append(step_index[-1] + num_envs * has_next.long())
        mask.append(mask[-1] * has_next)
    steps: Batch = dense(index(flat(rollout), torch.stack(step_index)))
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

    Counts only observations, which take most of the memory. setting: the config key to name.
    """
    obs_bytes = 0
    for _, leaf in leaves(spec.obs):
        itemsize = 1 if leaf.dtype == "uint8" else 4
        obs_bytes += math.prod(leaf.shape or ()) * itemsize // num_frames(leaf, spec.frame_stack)
    rollout_bytes = obs_bytes * (steps + 1) * spec.num_envs
    memory.check_fits(f"{setting}, env.num_envs={spec.num_envs}", rollout_bytes, device)


class Rollout:
    """Collects vector steps and returns them as one batch for an on-policy agent.

    Every observation is stored once: those acted on, the successors of the last step, and the final observations of
    episodes that ended before. Of stacked images only the newest frame is stored; near the start of an episode its
    first frame is repeated, as in replay.
    """

    def __init__(self, spec: Spec) -> None:
        self.num_frames = num_frames(spec.obs, spec.frame_stack)
        self.steps: list[Batch] = []
        self.earlier: Any = None  # older frames of the first observations, oldest first, [(stack - 1) * env, ...]
        self.obs: list[Any] = []  # observations acted on, [env, ...]
        self.final: list[Any] = []  # true successors, [env, ...]; None if they are the next observations
        self.last: Any = None  # true successors of the last step

    def add(
        self,
        obs: Any,
        action: Tensor,
        step: Step,
        extras: Batch,
        first: Tensor,
    ) -> None:
        """Adds one vector step. first [num_envs]: True where `obs` is the first observation of an episode."""
        if not self.steps:
            self.earlier = mapped(_older, self.num_frames, obs)
        row = {
            "action": action,
            "reward": step.reward,
            "terminated": step.terminated,
            "truncated": step.truncated,
            "weight": step.weight,
            "first": first,
        }
        if step.n_steps is not None:
            row["n_steps"] = step.n_steps
        self.steps.append(row | extras)
        self.obs.append(mapped(_newest, self.num_frames, obs))
        self.last = step.final_obs
        final = None
        if step.final_obs is not step.obs:
            final = mapped(_newest, self.num_frames, step.final_obs)
        self.final.append(final)

    def batch(self) -> Batch:
        """Returns all steps as one batch [time, env, ...].

        `next_obs` is the true successor, also where an episode ended. It is `Indexed` and shares its rows with `obs`.
        `obs` of stacked images is `Indexed` too.
        """
        batch: Batch = stack(self.steps)
        ended = batch["terminated"] | batch["truncated"]
        has_final = [final is not None for final in self.final]
        ended &= torch.tensor(has_final, device=ended.device).unsqueeze(-1)
        ended[-1] = False  # `last` holds the successors of the last step
        finals = [index(self.final[t], ended[t]) for t in ended.any(1).nonzero().flatten().tolist()]
        rows = joined([self.earlier, *self.obs, mapped(_newest, self.num_frames, self.last), *finals])

        def leaf(num_frames: int, stored: Tensor) -> tuple[Any, Indexed]:
            if num_frames == 1:
                obs = stored[: ended.numel()].unflatten(0, ended.shape)
                return obs, Indexed(stored, _successors(ended, num_older=0).int())
            obs_index, next_index = _stacks(batch["first"], ended, num_frames)
            return Indexed(stored, obs_index.int(), stacked=True), Indexed(stored, next_index.int(), stacked=True)

        pairs = mapped(leaf, self.num_frames, rows)
        obs = mapped(lambda pair: pair[0], pairs)
        next_obs = mapped(lambda pair: pair[1], pairs)
        return {"obs": obs, "next_obs": next_obs} | batch


def num_frames(space: Any, frame_stack: int) -> Any:
    """Returns how many frames an observation stacks: `frame_stack` for images, else 1. For a Dict, a dict of these."""
    if isinstance(space, spaces.Dict):
        return {key: num_frames(part, frame_stack) for key, part in space.items()}
    if is_image(space):
        return frame_stack
    return 1


def _newest(num_frames: int, obs: Tensor) -> Tensor:
    """Returns a copy of the newest frame of every stack; observations without frames are returned as they are."""
    if num_frames == 1:
        return obs
    return obs[:, -1].clone()


def _older(num_frames: int, obs: Tensor) -> Tensor:
    """Returns a copy of all frames but the newest, oldest first, [(num_frames - 1) * env, ...]."""
    if num_frames == 1:
        return obs[:0]
    return obs[:, :-1].transpose(0, 1).flatten(0, 1)


def _successors(ended: Tensor, num_older: int) -> Tensor:
    """Returns the index of the row that holds the newest frame of every successor, [time, env].

    The rows are, in this order: num_older frames of every environment before the rollout, the observations of every
    timestep, the successors of the last step, and one final observation for each entry of `ended` [time, env].
    """
    time, num_envs = ended.shape
    steps = torch.arange(ended.numel(), device=ended.device).view_as(ended)
    finals = (time + num_older + 1) * num_envs + ended.flatten().cumsum(0).view_as(ended) - 1
    return torch.where(ended, finals, steps + (num_older + 1) * num_envs)


def _stacks(first: Tensor, ended: Tensor, num_frames: int) -> tuple[Tensor, Tensor]:
    """Returns the row indices of the frames of every observation and of its successor, [time, env, num_frames].

    The rows are those of `_successors`. Near the start of an episode its first frame is repeated. All arguments are
    [time, env].
    """
    time, num_envs = first.shape
    env = torch.arange(num_envs, device=first.device)
    timestep = torch.arange(time, device=first.device).unsqueeze(-1)
    num_older = num_frames - 1
    begin = torch.where(first, timestep, -num_older)  # timestep of the oldest frame that the episode has
    begin[0] = -num_older
    begin = begin.cummax(0).values.unsqueeze(-1)
    frames_back = torch.arange(num_older, -1, -1, device=first.device)
    frame_timestep = torch.maximum(timestep.unsqueeze(-1) - frames_back, begin)
    obs = (frame_timestep + num_older) * num_envs + env.unsqueeze(-1)
    return obs, torch.cat([obs[..., 1:], _successors(ended, num_older).unsqueeze(-1)], -1)


def packed(rollout: Batch) -> Batch:
    """Returns a collected rollout as plain tensors: every `Indexed` as its indices, and their rows in `obs_rows`."""
    indices = {key: mapped(_index_of, rollout[key]) for key in ("obs", "next_obs")}
    return rollout | indices | {"obs_rows": mapped(lambda leaf: leaf.rows, rollout["next_obs"])}


def _index_of(leaf: Any) -> Tensor:
    if isinstance(leaf, Indexed):
        return leaf.index
    return leaf


def unpacked(rollout: Batch) -> Batch:
    """Returns a rollout from the plain tensors that `packed` returned."""
    num_leading = rollout["weight"].dim()

    def opened(rows: Tensor, obs: Any, next_index: Tensor) -> tuple[Any, Indexed]:
        stacked = next_index.dim() > num_leading
        if stacked:
            obs = Indexed(rows, obs, stacked)
        return obs, Indexed(rows, next_index, stacked)

    rollout = dict(rollout)
    pairs = mapped(opened, rollout.pop("obs_rows"), rollout["obs"], rollout["next_obs"])
    obs = mapped(lambda pair: pair[0], pairs)
    next_obs = mapped(lambda pair: pair[1], pairs)
    return rollout | {"obs": obs, "next_obs": next_obs}


def moved(rollout: Batch, device: torch.device) -> Batch:
    """Returns a copy of a collected rollout on a device."""
    return unpacked(on(device, packed(rollout)))


def minibatches(
    rollout: Batch,
    epochs: int,
    size: int | None,
    stream: Stream | None,
    length: int | None = 1,
    num: int | None = None,
) -> Iterator[list[Batch]]:
    """Yields one list of minibatches per epoch. Every row is used once per epoch, in a new random order.

    size: number of rows per minibatch. If it is None, num is the number of minibatches; if both are None, all rows are
    in one. stream: None keeps the stored order.

    length 1: minibatches [size, ...] of single steps, without masked steps (weight 0).
    length > 1, for recurrent agents: minibatches [length, size / length, ...] of sequences, masked steps included. If
    `length` does not divide the timesteps of the rollout, the last timesteps form shorter sequences in separate
    minibatches.
    length None: minibatches of whole rollouts, [time, size / time, ...].

    With `num`, single steps are divided into minibatches of ceil(time * env / num) rows. Sequences are divided by
    environments: each minibatch holds all sequences of env / num environments, and shorter sequences again follow in
    separate minibatches.

    If the size does not divide the number of single steps, masked steps pad the last minibatch, because a kernel is
    compiled again for every new shape. Without masked steps in the rollout, the last minibatch is smaller. So is the
    last minibatch of sequences.
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
    rollout: Batch, epochs: int, num: int, stream: Stream | None, length: int | None
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
            columns = torch.arange(block["weight"].shape[1], device=weight.device).view(-1, num_envs)
            for envs in order.chunk(num):
                epoch.append(dense(selected(block, columns[:, envs].flatten(), 1)))
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
        yield dense(selected(data, order[start : start + num_selected], dim))
