"""Experience replay: every transition is one packed row; image frames are stored once each.

The transition of environment `env` in vector step `row` has the unique flat index
    flat_index = row * num_envs + env
The next transition of the same environment has flat_index + num_envs. New rows overwrite the oldest ones; a transition
is stored at
    storage_index = flat_index modulo (capacity in rows * num_envs)

Example: flat indices of four steps of two environments. Environment 0 terminates at row 1.
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
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from gymnasium import Space
from torch import Tensor

from rlrun.buffers.episode_index import EpisodeIndex
from rlrun.buffers.frames import Frames
from rlrun.buffers.packing import Layout, Packing, Shape, layout, nest
from rlrun.buffers.ring import RingBuffer
from rlrun.core.random import Stream
from rlrun.errors import ConfigError
from rlrun.module import Module
from rlrun.nested import dotted, unflattened
from rlrun.networks.inputs import is_image, leaves
from rlrun.settings import PositiveFloat, PositiveInt, Scheduled, config, register
from rlrun.types import Batch, Metrics, Spec, Step


class Targets(NamedTuple):
    """What the buffer prepares for the targets of an agent."""

    gamma: float = 1.0
    n_step: int = 1  # maximum number of rewards in a return; the sum is discounted by gamma
    sequence_length: int | None = None  # length of sampled sequences [time, batch, ...]; None: transitions [batch, ...]
    burn_in: int = 0  # additional steps before a sequence; steps before the start of its episode are masked
    extras: Mapping[str, Space] = MappingProxyType({})  # spaces of the extras to store, by name
    num_next_steps: int = 0  # length of the sequences in the batch entry `next_steps`; 0: no such entry


Returns = Callable[[Tensor, int], tuple[Batch, Tensor, Batch]]
"""Reads n-step returns from flat indices [batch] and n_step; returns what `Replay._n_step_returns` does."""


@register("buffer", "replay")
class Replay(Module):
    """Uniform replay.

    A vector observation and its successor are stored in the same row, which makes sampling one gather. Of stacked
    images only the newest frame is stored, and sampling rebuilds stacks and successors. Rewards are stored unchanged;
    `read` clips, scales and standardises them.

    Sampling takes about 20 microseconds, as long as ten small torch operations. The code therefore skips operations
    that the most common cases do not need: a single environment, scalar rewards, n_step=1, a buffer that is not yet
    full.
    """

    @config
    class Config:
        capacity: PositiveInt
        reward_clip: PositiveFloat | None
        reward_scale: Scheduled[PositiveFloat]
        standardize_reward: bool
        compression: Literal["lz4"] | None

    def __init__(
        self,
        cfg: Any,
        spec: Spec,
        targets: Targets,
        seed: int,
        device: torch.device,
    ):
        super().__init__()
        rows = cfg.capacity // spec.num_envs
        _check_capacity(cfg.capacity, rows, spec, targets)
        self.cfg = cfg
        self.spec = spec
        self.targets = targets
        self.device = device
        self.stream = Stream(seed, "replay", device)
        self.cleared = 0  # `clear` removed all rows before this one; the ring may still hold some of them
        images = _image_shapes(spec.obs)
        setting = f"algo.buffer.capacity={cfg.capacity}"
        self.frames: Frames | None = None
        if cfg.compression is not None and not images:
            raise ConfigError(
                f"algo.buffer.compression={cfg.compression}: compresses images, of which these observations have none"
            )
        if images:
            self.frames = Frames(spec, images, rows, device, setting, compress=cfg.compression is not None)
        self.packing = Packing(_row_fields(spec, targets, images))
        packed_row = ((spec.num_envs, self.packing.width), torch.float32)
        self.ring = RingBuffer(rows, {"rows": packed_row}, device, setting)
        self.packing.hold(self.ring.memory["rows"])
        self.episodes = EpisodeIndex(rows, spec.num_envs)

    def __len__(self) -> int:
        """The number of transitions that can be sampled."""
        first, last = self.span
        return last - first

    @property
    def capacity(self) -> int:
        """The number of transitions that fit into memory."""
        return self.ring.capacity * self.spec.num_envs

    @property
    def span(self) -> tuple[int, int]:
        """The range of flat indices that can be sampled: first, and last (exclusive)."""
        first = self.first
        last = max(first, self.num_complete_rows)
        return first * self.spec.num_envs, last * self.spec.num_envs

    @property
    def first(self) -> int:
        """The oldest row that can be sampled. With images, the frames of its whole stack must be in memory."""
        oldest = self.ring.first
        if self.frames and oldest:
            oldest += self.frames.stack
        return max(self.cleared, oldest)

    @property
    def num_complete_rows(self) -> int:
        """The number of rows so far whose successors are stored; the successor of an image comes with the next row."""
        if self.frames:
            return self.ring.total - 1
        return self.ring.total

    def add(
        self,
        obs: Any,
        action: Tensor,
        step: Step,
        extras: Batch,
    ) -> None:
        """Stores one vector step with the extras that `targets.extras` names; missing extras are stored as 0."""
        values = {
            "action": action,
            "reward": step.reward,
            "terminated": step.terminated,
            "truncated": step.truncated,
            "weight": step.weight,
        }
        values |= dotted("obs", obs)
        values |= dotted("next_obs", step.final_obs)
        for name, space in self.targets.extras.items():
            if name in extras:
                values[name] = extras[name]
            else:
                shape = space.shape or ()
                values[name] = step.reward.new_zeros(len(action), *shape)
        if step.n_steps is not None:
            values["n_steps"] = step.n_steps
        if self.frames:
            self.frames.add(values, step, self.ring.total)
        self.packing.pack(values, self.ring.append())

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

    def field(self, name: str, flat_index: Tensor) -> Tensor:
        """Returns one stored field, such as "reward" or "next_obs.achieved_goal", at flat indices of any shape [...].

        The result is [..., *shape of the field]. Images are no fields, because `Frames` stores them.
        """
        return self.packing.field(name, self.storage_index(flat_index))

    def steps_to_episode_end(self, flat_index: Tensor) -> Tensor:
        """Returns how many further steps of the same episode are stored after each flat index [batch]."""
        _, last_index = self.episode_of(flat_index)
        return (last_index - flat_index) // self.spec.num_envs

    def episode_of(self, flat_index: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the flat indices of the first and the last stored step of the episode of each flat index, [batch].

        Of an episode that is still running, the last step is the newest that can be sampled.
        """
        self._index_episodes()
        num_envs = self.spec.num_envs
        row = flat_index.cpu().numpy() // num_envs
        env = flat_index.cpu().numpy() % num_envs
        first_row, last_row = self.episodes.rows(row, env)
        first_row = np.maximum(first_row, self.first)
        last_row = np.minimum(last_row, self.num_complete_rows - 1)
        first_index = torch.from_numpy(first_row * num_envs + env)
        last_index = torch.from_numpy(last_row * num_envs + env)
        return first_index.to(self.device), last_index.to(self.device)

    def _index_episodes(self) -> None:
        """Adds the rows that are new since the last call to the index of episodes."""
        first_row = max(self.episodes.num_rows, self.ring.first)
        if first_row == self.ring.total:
            return
        num_envs = self.spec.num_envs
        flat_index = torch.arange(first_row * num_envs, self.ring.total * num_envs, device=self.device)
        done, weight = self._done_and_weight(self.storage_index(flat_index))
        done, weight = done.view(-1, num_envs), weight.view(-1, num_envs)
        self.episodes.add(first_row, (done > 0).cpu().numpy(), (weight == 0).cpu().numpy())

    def _read(self, flat_index: Tensor, returns: Returns) -> Batch:
        """Returns the batch for flat indices [batch], whose rewards and terminations come from `returns`."""
        targets = self.targets
        if targets.sequence_length is None:
            batch = self._transitions(flat_index, returns)
        else:
            batch = self._sequences(flat_index, returns, targets.sequence_length, targets.n_step, targets.burn_in)
        if targets.num_next_steps:
            next_steps: Any = self._sequences(flat_index, returns, targets.num_next_steps)
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
        batch, last_index, end = returns(flat_index, self.targets.n_step)
        batch |= self._observations(flat_index, last_index, batch, end)
        return batch

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
        batch]; `weight` [batch] is the weight of the step at the flat index.
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
        return batch

    def _n_step_returns(self, flat_index: Tensor, n_step: int) -> tuple[Batch, Tensor, Batch]:
        """Returns (rows with n-step returns, flat indices of the last summed rewards, rows at these flat indices).

        `n_steps` is the number of summed rewards. `terminated` is 1 if the episode terminated with the last of them.
        """
        batch = self._unpacked(flat_index)
        if n_step == 1:
            if not self.spec.holds:
                batch["n_steps"] = torch.ones_like(batch["weight"])
            return batch, flat_index, batch
        batch["reward"], batch["n_steps"], num_rows = self._n_step_rewards(flat_index)
        last_index = flat_index + self.spec.num_envs * (num_rows.long() - 1)
        end = self._unpacked(last_index)
        batch["terminated"] = end["terminated"]
        self._put_end(batch, end)
        return batch, last_index, end

    def _n_step_rewards(self, flat_index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns sum_k gamma^k r_{t+k} over up to n_step rows of the same episode, the number of rewards in it, and
        the number of rows; [batch].

        If actions are held, a row sums several rewards, and k counts those of the rows before.
        """
        following = self._following(flat_index, self.targets.n_step)
        same_episode = self._same_episode_mask(following)  # [n_step, batch, 1]
        storage_index = self._clamped_storage_index(following)
        reward = self.packing.rows[:, self.packing.slices["reward"]][storage_index]
        num_rows = same_episode.sum(0).squeeze(-1)
        if not self.spec.holds:
            return self._discounted_sum(reward, same_episode), num_rows, num_rows
        lasted = same_episode * self.packing.rows[:, self.packing.slices["n_steps"]][storage_index]
        elapsed = lasted.cumsum(0) - lasted
        return self._discounted_sum(reward, same_episode, elapsed), lasted.sum(0).squeeze(-1), num_rows

    def _following(self, flat_index: Tensor, length: int) -> Tensor:
        """Returns the flat indices of the `length` steps from each flat index on, [length, batch]."""
        step = torch.arange(length, device=self.device)
        return flat_index + self.spec.num_envs * step.view(-1, 1)

    def _discounted_sum(self, reward: Tensor, mask: Tensor, elapsed: Tensor | None = None) -> Tensor:
        """Returns the discounted sum of clipped rewards [time, batch, columns] where `mask` [time, batch, 1] is 1;
        [batch], or [batch, columns]. elapsed: rewards before every row; None: one for each row."""
        if elapsed is None:
            elapsed = torch.arange(len(reward), device=self.device).view(-1, 1, 1)
        discount = self.targets.gamma**elapsed
        total = (discount * mask * self._clipped(reward)).sum(0)
        if self.spec.reward_dim == 1:
            total = total.squeeze(-1)
        return total

    def _put_end(self, batch: Batch, end: Batch) -> None:
        """Puts into n-step transitions what `act` received with `next_obs`, from the rows of their last rewards."""
        for name in self.targets.extras:
            if name.startswith("carry."):
                batch[name] = end[name]

    def _same_episode_mask(self, following: Tensor) -> Tensor:
        """Returns 1 where an index of `following` [time, batch] belongs to the same episode as following[0]; else 0.

        The result is [time, batch, 1].
        """
        storage_index = self._clamped_storage_index(following)
        done, weight = self._done_and_weight(storage_index)
        num_stored = self.num_complete_rows * self.spec.num_envs
        is_stored = (following[1:] < num_stored).unsqueeze(-1)
        is_ended = done[:-1] > 0
        is_valid = weight[1:] > 0  # a masked step ends the sequence
        goes_on = is_stored & is_valid & ~is_ended
        after_first = goes_on.to(done.dtype).cumprod(0)
        first = torch.ones_like(done[:1])
        return torch.cat([first, after_first])

    def _num_steps_before(self, flat_index: Tensor, burn_in: int) -> Tensor:
        """Returns how many steps of its episode are stored before each index, at most burn_in; [batch]."""
        num_envs = self.spec.num_envs
        first_index = self.first * num_envs
        step = torch.arange(1, burn_in + 1, device=self.device)
        step = step.view(-1, 1)
        preceding = flat_index - num_envs * step  # [burn_in, batch]
        storage_index = self.storage_index(preceding.clamp(min=first_index))
        done, weight = self._done_and_weight(storage_index)
        is_stored = (preceding >= first_index).unsqueeze(-1)
        goes_on = (done == 0) & is_stored & (weight > 0)
        return goes_on.long().cumprod(0).sum(0).squeeze(-1)

    def _done_and_weight(self, storage_index: Tensor) -> tuple[Tensor, Tensor]:
        """Returns 1 where an episode ends at a stored row (else 0), and the weights of the rows; both [..., 1]."""
        rows = self.packing.rows
        slices = self.packing.slices
        terminated = rows[:, slices["terminated"]][storage_index]
        truncated = rows[:, slices["truncated"]][storage_index]
        weight = rows[:, slices["weight"]][storage_index]
        return terminated + truncated, weight

    def _unpacked(self, flat_index: Tensor) -> Batch:
        """Returns the fields of stored rows, with clipped rewards."""
        batch = self.packing.take(self.storage_index(flat_index))
        batch["reward"] = self._clipped(batch["reward"])
        return batch

    def storage_index(self, flat_index: Tensor) -> Tensor:
        """Returns the storage indices of flat indices."""
        if self.ring.first == 0:  # nothing was overwritten yet, so both indices are equal
            return flat_index
        return flat_index % (self.ring.capacity * self.spec.num_envs)

    def _clamped_storage_index(self, flat_index: Tensor) -> Tensor:
        """Returns the storage indices of flat indices. Indices beyond the newest row are replaced by the newest."""
        newest = self.num_complete_rows * self.spec.num_envs - 1
        return self.storage_index(flat_index.clamp(max=newest))

    def _clipped(self, reward: Tensor) -> Tensor:
        bound = self.cfg.reward_clip
        if bound is None:
            return reward
        return reward.clamp(-bound, bound)

    def _observations(
        self,
        flat_index: Tensor,
        last_index: Tensor,
        batch: Batch,
        end: Batch,
    ) -> Batch:
        """Returns `obs` of the rows `batch` at flat_index, and `next_obs` of the rows `end` at last_index."""
        if self.frames:
            num_envs = self.spec.num_envs
            row, env = flat_index // num_envs, flat_index % num_envs
            last_row, last_env = last_index // num_envs, last_index % num_envs
            batch = batch | self.frames.stacks(row, env)
            end = end | self.frames.successors(last_row, last_env, self.ring.total)
        obs = nest(batch, "obs", self.spec.obs)
        next_obs = nest(end, "next_obs", self.spec.obs)
        return {"obs": obs, "next_obs": next_obs}

    def clear(self) -> None:
        """Removes every transition. The next row starts new episodes."""
        self.cleared = self.ring.total
        if self.frames:
            self.frames.clear()

    def get_extra_state(self) -> int:
        return self.cleared

    def set_extra_state(self, state: int) -> None:
        self.cleared = state
        self.episodes.clear()  # the rows are loaded separately; the index is built from them

    def feedback(self, batch: Batch, out: Metrics | tuple[Metrics, Tensor]) -> None:
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
    targets: Targets,
) -> None:
    """Raises ConfigError if the rows are too few for a vector step, for one sampled sequence, or for a frame stack."""
    if rows < 1:
        raise ConfigError(f"algo.buffer.capacity={capacity}: must be at least env.num_envs={spec.num_envs}")
    after_burn_in = max(targets.n_step, targets.sequence_length or 1, targets.num_next_steps)
    length = targets.burn_in + after_burn_in
    if length > rows:
        raise ConfigError(
            f"algo.buffer.capacity={capacity}: {rows} timesteps fit, but the agent learns from {length} in a row"
        )
    if _image_shapes(spec.obs) and rows <= spec.frame_stack + 1:
        raise ConfigError(f"algo.buffer.capacity={capacity}: too small for stacks of {spec.frame_stack} frames")


def _image_shapes(space: Space) -> dict[str, Shape]:
    """Returns the shapes of all images in an observation space, by dotted key."""
    shapes = {}
    for path, leaf in leaves(space):
        if is_image(leaf):
            shapes[".".join(path)] = leaf.shape or ()
    return shapes


def _row_fields(spec: Spec, targets: Targets, images: dict[str, Shape]) -> Layout:
    """Returns the fields of a packed row: all fields of a transition except images."""
    scalar = ((), torch.float32)
    reward: tuple[Shape, torch.dtype] = scalar
    if spec.reward_dim > 1:
        reward = ((spec.reward_dim,), torch.float32)
    fields = layout("action", spec.action)
    fields |= {"reward": reward, "terminated": scalar, "truncated": scalar, "weight": scalar}
    if spec.holds:
        fields["n_steps"] = scalar
    observations = layout("obs", spec.obs) | layout("next_obs", spec.obs)
    for name, field in observations.items():
        _, _, key = name.partition(".")
        if key not in images:
            fields[name] = field
    for name, space in targets.extras.items():
        fields |= layout(name, space)
    return fields
