"""Transitions in memory: each is packed into one vector, except for images, of which every frame is stored once.

A row holds the transitions of one vector step. The transition of environment `env` in row `row` has the flat index
    flat_index = row * num_envs + env
The next transition of the same environment has flat_index + num_envs. New rows overwrite the oldest ones; a transition
is stored at
    storage_index = flat_index modulo (capacity in rows * num_envs)
`buffers/replay.py` has an example.
"""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import Space
from torch import Tensor

from rlrun.buffers.dtypes import FloatType, stored_as
from rlrun.buffers.episode_index import EpisodeIndex
from rlrun.buffers.frames import Frames
from rlrun.buffers.packing import Layout, Packing, Shape, layout, nest
from rlrun.buffers.ring import RingBuffer
from rlrun.errors import ConfigError
from rlrun.module import Module
from rlrun.nested import dotted
from rlrun.networks.inputs import is_image, leaves
from rlrun.types import Batch, Spec, Step

START = "start."  # prefix of the extras that are read for the first steps of sequences alone


class StoredRows(Module):
    """Stores vector steps, and finds them by flat index.

    A vector observation and its successor are stored in the same row, which makes reading one gather. Of stacked images
    only the newest frame is stored; stacks and successors are rebuilt.

    dtypes: `algo.buffer.dtypes`, the types in which floats are stored. extras: spaces of the extras to store, by name.
    """

    def __init__(
        self,
        capacity: int,
        compression: str | None,
        dtypes: Mapping[Literal["obs"], FloatType],
        spec: Spec,
        extras: Mapping[str, Space],
        device: torch.device,
    ):
        super().__init__()
        rows = capacity // spec.num_envs
        self.spec = spec
        self.extras = extras
        self.device = device
        self.cleared = 0  # `clear` removed all rows before this one; the ring may still hold some of them
        images = image_shapes(spec.obs)
        setting = f"algo.buffer.capacity={capacity}"
        self.frames: Frames | None = None
        if compression is not None and not images:
            raise ConfigError(
                f"algo.buffer.compression={compression}: compresses images, of which these observations have none"
            )
        if images:
            self.frames = Frames(spec, images, rows, device, setting, compress=compression is not None)
        fields = _row_fields(spec, extras, images)
        self.obs_dtype = dtypes.get("obs", "float32")
        half: Layout = {}  # fields of `obs_dtype`, if it has 16 bits
        if self.obs_dtype != "float32":
            half = {name: field for name, field in fields.items() if _is_float_obs(name, field)}
        starts = {name: field for name, field in fields.items() if name.startswith(START)}
        self.packing = Packing({name: field for name, field in fields.items() if name not in half | starts})
        packed: Layout = {"rows": ((spec.num_envs, self.packing.width), torch.float32)}
        self.obs_packing: Packing | None = None
        if half:
            self.obs_packing = Packing(half)
            packed["obs"] = ((spec.num_envs, self.obs_packing.width), getattr(torch, self.obs_dtype))
        self.start_packing: Packing | None = None  # the extras that are read for the first steps of sequences alone
        if starts:
            self.start_packing = Packing(starts)
            packed["starts"] = ((spec.num_envs, self.start_packing.width), torch.float32)
        self.ring = RingBuffer(rows, packed, device, setting)
        self.packing.hold(self.ring.memory["rows"])
        if self.obs_packing is not None:
            self.obs_packing.hold(self.ring.memory["obs"])
        if self.start_packing is not None:
            self.start_packing.hold(self.ring.memory["starts"])
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

    def add(self, step: Step) -> None:
        """Stores one vector step, with the executed action.

        Of the extras, only those that `self.extras` names are stored; missing ones are stored as 0.
        """
        values = step | {"action": step["executed"]}
        for name in ("obs", "next_obs"):
            obs: Any = step[name]
            if self.obs_packing is not None:
                obs = stored_as(self.obs_dtype, obs, "algo.buffer.dtypes.obs", "an observation")
            values |= dotted(name, obs)
        for name, space in self.extras.items():
            if name not in step:
                shape = space.shape or ()
                values[name] = step["reward"].new_zeros(self.spec.num_envs, *shape)
        if self.frames:
            self.frames.add(values, self.ring.total)
        row = self.ring.append()
        self.packing.pack(values, row)
        if self.obs_packing is not None:
            self.obs_packing.pack(values, row)
        if self.start_packing is not None:
            self.start_packing.pack(values, row)

    def field(self, name: str, flat_index: Tensor) -> Tensor:
        """Returns one stored field, such as "reward" or "next_obs.achieved_goal", at flat indices of any shape [...].

        The result is [..., *shape of the field]. Images come with all frames of their stacks. Raises KeyError for a
        field that is not stored.
        """
        for packing in (self.packing, self.obs_packing, self.start_packing):
            if packing is not None and name in packing.fields:
                return packing.field(name, self.storage_index(flat_index))
        images: Batch = {}
        if self.frames:
            row, env = flat_index.flatten() // self.spec.num_envs, flat_index.flatten() % self.spec.num_envs
            images = self.frames.stacks(row, env) | self.frames.successors(row, env, self.ring.total)
        return images[name].unflatten(0, flat_index.shape)

    def storage_index(self, flat_index: Tensor) -> Tensor:
        """Returns the storage indices of flat indices."""
        if self.ring.first == 0:  # nothing was overwritten yet, so both indices are equal
            return flat_index
        return flat_index % (self.ring.capacity * self.spec.num_envs)

    def _clamped_storage_index(self, flat_index: Tensor) -> Tensor:
        """Returns the storage indices of flat indices. Indices beyond the newest row are replaced by the newest."""
        newest = self.num_complete_rows * self.spec.num_envs - 1
        return self.storage_index(flat_index.clamp(max=newest))

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

    def _following(self, flat_index: Tensor, length: int) -> Tensor:
        """Returns the flat indices of the `length` steps from each flat index on, [length, batch]."""
        step = torch.arange(length, device=self.device)
        return flat_index + self.spec.num_envs * step.view(-1, 1)

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
        vectors = self.packing.vectors
        slices = self.packing.slices
        terminated = vectors[:, slices["terminated"]][storage_index]
        truncated = vectors[:, slices["truncated"]][storage_index]
        weight = vectors[:, slices["weight"]][storage_index]
        return terminated + truncated, weight

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


def image_shapes(space: Space) -> dict[str, Shape]:
    """Returns the shapes of all images in an observation space, by dotted key."""
    shapes = {}
    for path, leaf in leaves(space):
        if is_image(leaf):
            shapes[".".join(path)] = leaf.shape or ()
    return shapes


def _is_float_obs(name: str, field: tuple[Shape, torch.dtype]) -> bool:
    """Returns whether a packed field holds floats of observations."""
    return name.partition(".")[0] in ("obs", "next_obs") and field[1] == torch.float32


def _row_fields(spec: Spec, extras: Mapping[str, Space], images: dict[str, Shape]) -> Layout:
    """Returns the fields that are packed for every transition: all except images."""
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
    for name, space in extras.items():
        fields |= layout(name, space)
    return fields
