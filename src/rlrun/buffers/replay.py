"""Experience replay: uniform sampling, and reading of n-step returns and sequences.

Example: flat indices (`buffers/rows.py`) of four steps of two environments. Environment 0 terminates at row 1.
    row              0   1   2   3
    environment 0    0   2   4   6
    environment 1    1   3   5   7
With n_step=3, `read` of the indices 0, 2, 1 and 5 returns these transitions. r_i is the reward at flat index i; the
last column is the flat index of the step whose `next_obs` is returned.
    index   reward                          n_steps   terminated   next_obs of
    0       r_0 + gamma r_2                 2         1            2, where the episode terminates
    2       r_2                             1         1            2
    1       r_1 + gamma r_3 + gamma^2 r_5   3         0            5
    5       r_5 + gamma r_7                 2         0            7, the newest transition
With sequence_length=3, `read` returns the steps [0, 2, 2] for index 0 and [5, 7, 7] for index 5, both with the mask
[1, 1, 0].
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from gymnasium import Space
from torch import Tensor

from rlrun.buffers.dtypes import FloatType
from rlrun.buffers.rows import StoredRows, image_shapes
from rlrun.core.random import Stream
from rlrun.errors import ConfigError
from rlrun.settings import PositiveFloat, PositiveInt, Scheduled, config, register
from rlrun.tensors import row, unflattened
from rlrun.types import Batch, Discount, Spec


class Reading(NamedTuple):
    """What an agent and its add-ons read from replay."""

    gamma: Discount = 1.0
    n_step: int = 1  # maximum number of rewards in a return; the sum is discounted by gamma
    sequence_length: int | None = None  # length of sampled sequences [time, batch, ...]; None: transitions [batch, ...]
    burn_in: int = 0  # additional steps before a sequence; steps before the start of its episode are masked
    extras: Mapping[str, Space] = MappingProxyType({})  # spaces of the extras to store, by name
    num_next_steps: int = 0  # length of the sequences in the batch entry `next_steps`; 0: no such entry
    per_step: Callable[[Tensor], Tensor] | None = (
        None  # changes the environment's reward of single steps; None: nothing
    )
    own_rewards: int = 1  # number of stored reward columns of the environment; those after it are of reward modules
    keeps_raw: bool = False  # whether batches also have the unchanged rewards, `untransformed.reward`


Returns = Callable[[Tensor, int], tuple[Batch, Tensor, Batch]]
"""Reads n-step returns from flat indices [batch] and n_step; returns what `Replay._n_step_returns` does."""


@register("buffer", "replay")
class Replay(StoredRows):
    """Uniform replay.

    Rewards are stored unchanged; `read` clips, scales and standardises them.

    Sampling takes about 20 microseconds, as long as ten small torch operations. The code therefore skips operations
    that the most common cases do not need: a single environment, scalar rewards, n_step=1, a buffer that is not yet
    full.
    """

    registered: ClassVar[str]  # the name in configs, set by @register
    needs_errors: ClassVar[bool] = False  # whether it computes priorities from the errors that agents return

    @config
    class Config:
        capacity: PositiveInt
        reward_clip: PositiveFloat | None
        reward_scale: Scheduled[PositiveFloat]
        standardize_reward: bool
        compression: Literal["lz4"] | None
        dtypes: dict[Literal["obs"], FloatType]

    def __init__(
        self,
        cfg: Any,
        spec: Spec,
        reading: Reading,
        seed: int,
        device: torch.device,
    ):
        _check_capacity(cfg.capacity, cfg.capacity // spec.num_envs, spec, reading)
        super().__init__(cfg.capacity, cfg.compression, cfg.dtypes, spec, reading.extras, device)
        self.cfg = cfg
        self.reading = reading
        self.gamma = row(reading.gamma, device)
        self.stream = Stream(seed, "replay", device)

    def sample(self, size: int) -> Batch:
        """Returns a batch drawn uniformly with replacement."""
        first, last = self.span
        return self.drawn(self.stream.integers(last, size, low=first))

    def drawn(self, flat_index: Tensor) -> Batch:
        """Returns the batch for flat indices [batch] that `sample` has drawn. Hindsight relabels it."""
        return self.read(flat_index)

    def all(self) -> Batch:
        """Returns every stored transition, oldest first."""
        return self.since(0)

    def since(self, flat_index: int) -> Batch:
        """Returns every stored transition from this flat index on, oldest first."""
        first, last = self.span
        first = min(max(first, flat_index), last)
        return self.read(torch.arange(first, last, device=self.device))

    def stored(self) -> Batch:
        """Returns every stored step as it was stored, oldest first: with the reward of this step alone, unclipped."""
        first, last = self.span
        flat_index = torch.arange(first, last, device=self.device)
        batch = self._unpacked(flat_index)
        batch["reward"] = self.field("reward", flat_index)
        batch.pop("untransformed.reward", None)  # the same
        batch |= self._observations(flat_index, flat_index, batch, batch)
        return batch | self._starts(flat_index)

    def of_action(self, action: int, size: int | None = None) -> Batch:
        """Returns stored transitions with this action of a discrete space.

        size: number of transitions, drawn uniformly with replacement; None: all of them, oldest first. If no stored
        transition has this action, the batch is empty.
        """
        first, last = self.span
        flat_index = torch.arange(first, last, device=self.device)
        stored = self._unpacked(flat_index)
        matching = flat_index[stored["action"] == action]
        if size is not None and len(matching):
            matching = matching[self.stream.integers(len(matching), size)]
        return self.read(matching)

    def read(self, flat_index: Tensor) -> Batch:
        """Returns the batch for flat indices [batch] as stored, with the keys of `types.Transition`."""
        return self._read(flat_index, self._n_step_returns)

    def _read(self, flat_index: Tensor, returns: Returns) -> Batch:
        """Returns the batch for flat indices [batch], whose rewards and terminations come from `returns`."""
        reading = self.reading
        if reading.sequence_length is None:
            batch = self._transitions(flat_index, returns)
        else:
            batch = self._sequences(flat_index, returns, reading.sequence_length, reading.n_step, reading.burn_in)
        if reading.num_next_steps:
            next_steps: Any = self._sequences(flat_index, returns, reading.num_next_steps)
            batch["next_steps"] = next_steps
        if self.cfg.standardize_reward:
            mask = batch["weight"]
            if "mask" in batch:
                mask = batch["mask"]
            batch["reward"] = standardized(batch["reward"], mask)
        if self.cfg.reward_scale != 1:
            batch["reward"] = self.cfg.reward_scale * batch["reward"]
        row = flat_index  # equal for a single environment; the division would take 2 microseconds
        if self.spec.num_envs > 1:
            row = flat_index // self.spec.num_envs
        newest_row = self.ring.total - 1
        batch["index"] = flat_index
        batch["age"] = torch.sub(newest_row, row)
        return batch

    def _transitions(self, flat_index: Tensor, returns: Returns) -> Batch:
        """Returns transitions [batch, ...] of n_step steps each, or fewer where the episode or the data end."""
        batch, last_index, end = returns(flat_index, self.reading.n_step)
        if end is not batch:  # the last of several steps
            self._put_end(batch, end)
        batch |= self._observations(flat_index, last_index, batch, end)
        return batch | self._starts(flat_index)

    def _sequences(
        self,
        flat_index: Tensor,
        returns: Returns,
        length: int,
        n_step: int = 1,
        burn_in: int = 0,
    ) -> Batch:
        """Returns sequences [burn_in + length, batch, ...] that start `burn_in` steps before each flat index.

        A sequence holds steps of one episode only. Steps before the episode, after the episode or not in memory are
        replaced by the nearest valid step, and have `mask` 0; all others have `mask` 1. `mask` is [burn_in + length,
        batch]; `weight` [batch] is the weight of the step at the flat index. Extras `start.*` [batch, ...] are those of
        the first step of each sequence.
        """
        num_envs = self.spec.num_envs
        offset = torch.arange(-burn_in, length, device=self.device)
        offset = offset.view(-1, 1)  # [time, 1]
        following = flat_index + num_envs * offset[burn_in:]
        same_episode = self._same_episode_mask(following)
        first_offset = -self._num_steps_before(flat_index, burn_in)  # [batch]
        last_offset = same_episode.sum(0).long().squeeze(-1) - 1
        in_episode = (first_offset <= offset) & (offset <= last_offset)
        nearest_offset = torch.minimum(torch.maximum(offset, first_offset), last_offset)
        step_index = flat_index + num_envs * nearest_offset  # [time, batch]

        step_indices = step_index.flatten()
        batch, _, _ = returns(step_indices, n_step)
        batch |= self._observations(step_indices, step_indices, batch, batch)
        batch = unflattened(batch, *step_index.shape)
        batch["weight"] = batch["weight"][burn_in]
        batch["mask"] = in_episode.float() * (batch["weight"] > 0)
        return batch | self._starts(step_index[0])

    def _n_step_returns(self, flat_index: Tensor, n_step: int) -> tuple[Batch, Tensor, Batch]:
        """Returns (rows with n-step returns, flat indices of the last summed rewards, rows at these flat indices).

        `n_steps` is the number of summed rewards. `terminated` is 1 if the episode terminated with the last of them.
        """
        batch = self._unpacked(flat_index)
        if n_step == 1:
            if not self.spec.holds:
                batch["n_steps"] = torch.ones_like(batch["weight"])
            return batch, flat_index, batch
        num_rows = self._put_n_step_rewards(batch, flat_index)
        last_index = flat_index + self.spec.num_envs * (num_rows.long() - 1)
        end = self._unpacked(last_index)
        batch["terminated"] = end["terminated"]
        return batch, last_index, end

    def _put_n_step_rewards(self, batch: Batch, flat_index: Tensor) -> Tensor:
        """Sets `reward` of a batch to sum_k gamma^k r_{t+k} over up to n_step rows of the same episode, and `n_steps`
        to the number of rewards in it. Returns the number of rows, [batch].

        If actions are held, a row sums several rewards, and k is the number of rewards in the rows before.
        """
        following = self._following(flat_index, self.reading.n_step)
        same_episode = self._same_episode_mask(following)  # [n_step, batch, 1]
        storage_index = self._clamped_storage_index(following)
        reward = self.packing.vectors[:, self.packing.slices["reward"]][storage_index]
        num_rows = same_episode.sum(0).squeeze(-1)
        batch["n_steps"] = num_rows
        elapsed: Tensor | None = None
        if self.spec.holds:
            lasted = same_episode * self.packing.vectors[:, self.packing.slices["n_steps"]][storage_index]
            elapsed = lasted.cumsum(0) - lasted
            batch["n_steps"] = lasted.sum(0).squeeze(-1)
        self._put_sums(batch, reward, same_episode, elapsed)
        return num_rows

    def _put_sums(self, batch: Batch, reward: Tensor, mask: Tensor, elapsed: Tensor | None = None) -> None:
        """Sets `reward` of a batch to the discounted sum of rewards [time, batch, columns], changed and clipped, where
        `mask` [time, batch, 1] is 1; [batch], or [batch, columns].

        elapsed: number of rewards in the rows before; None: every row has one.
        """
        if elapsed is None:
            elapsed = torch.arange(len(reward), device=self.device).view(-1, 1, 1)
        discount = self.gamma**elapsed
        if self.spec.reward_dim == 1:
            reward = reward.squeeze(-1)
        single = {"reward": reward}
        self._change(single)
        for name, values in single.items():
            if values.dim() < mask.dim():
                batch[name] = (discount * mask * values.unsqueeze(-1)).sum(0).squeeze(-1)
            else:
                batch[name] = (discount * mask * values).sum(0)

    def _put_end(self, batch: Batch, end: Batch) -> None:
        """Replaces the extras `carry.*` of n-step transitions by those of the last step, which belong to `next_obs`."""
        for name in self.reading.extras:
            if name.startswith("carry."):
                batch[name] = end[name]

    def _starts(self, flat_index: Tensor) -> Batch:
        """Returns the extras `start.*` of stored rows."""
        if self.start_packing is None:
            return {}
        return self.start_packing.take(self.storage_index(flat_index))

    def _unpacked(self, flat_index: Tensor) -> Batch:
        """Returns the fields of stored rows, with rewards that are changed and clipped."""
        storage_index = self.storage_index(flat_index)
        batch = self.packing.take(storage_index)
        if self.obs_packing is not None:
            batch |= self.obs_packing.take(storage_index)
        if self.reading.per_step is not None or self.cfg.reward_clip is not None:
            self._change(batch)
        return batch

    def _change(self, batch: Batch) -> None:
        """Changes and clips the rewards of single steps, [...] or [..., columns]. With `keeps_raw`, the unchanged
        rewards of the environment become a further entry; columns of intrinsic rewards stay as they are."""
        per_step = self.reading.per_step
        bound = self.cfg.reward_clip
        if per_step is not None:
            has_bonuses = self.spec.reward_dim > self.reading.own_rewards
            reward = batch["reward"]
            own = reward
            if has_bonuses:
                own = reward[..., 0]
            if self.reading.keeps_raw:
                batch["untransformed.reward"] = own
            batch["reward"] = per_step(own)
            if has_bonuses:
                batch["reward"] = torch.cat([batch["reward"].unsqueeze(-1), reward[..., 1:]], -1)
        if bound is not None:
            batch["reward"] = batch["reward"].clamp(-bound, bound)

    def feedback(self, batch: Batch, error: Tensor) -> None:
        """Ignores the TD errors that an agent may return. Prioritised replay overrides this method."""


def standardized(x: Tensor, weight: Tensor) -> Tensor:
    """Returns x, standardised to mean 0 and standard deviation 1 over the rows with weight > 0.

    x is [batch, ...] with weight [batch], or [time, batch, ...] with weight [time, batch].
    """
    rows = x.flatten(0, weight.dim() - 1)
    one_per_row = [1] * (rows.dim() - 1)
    mask = (weight > 0).to(x.dtype).view(-1, *one_per_row)
    count = mask.sum().clamp(min=1)
    mean = (mask * rows).sum(0) / count
    variance = (mask * (rows - mean) ** 2).sum(0) / count
    std = variance.sqrt()
    return ((rows - mean) / (std + 1e-8)).view(x.shape)


def _check_capacity(
    capacity: int,
    rows: int,
    spec: Spec,
    reading: Reading,
) -> None:
    """Raises ConfigError if the rows are too few for a vector step, for one sampled sequence, or for a frame stack."""
    if rows < 1:
        raise ConfigError(f"algo.buffer.capacity={capacity}: must be at least env.num_envs={spec.num_envs}")
    after_burn_in = max(reading.n_step, reading.sequence_length or 1, reading.num_next_steps)
    length = reading.burn_in + after_burn_in
    if length > rows:
        raise ConfigError(
            f"algo.buffer.capacity={capacity}: {rows} timesteps fit, but the agent learns from {length} in a row"
        )
    if image_shapes(spec.obs) and rows <= spec.frame_stack + 1:
        raise ConfigError(f"algo.buffer.capacity={capacity}: too small for stacks of {spec.frame_stack} frames")
