"""Collection of one on-policy rollout [time, env, ...]."""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

import torch
from gymnasium import spaces
from torch import Tensor

from rlrun import memory
from rlrun.buffers.dtypes import FloatType, stored_as
from rlrun.indexed import HALVES, Indexed
from rlrun.nested import index, mapped
from rlrun.networks.inputs import is_image, leaves
from rlrun.tensors import joined, on, stack
from rlrun.types import Batch, Obs, Spec, Step

Dtypes = Mapping[Literal["obs"], FloatType]
# entries of a step that a rollout holds in another form, or that nobody learns from
ELSEWHERE = frozenset(("obs", "next_obs", "following", "executed", "drawn_reward"))


def check_fits(
    setting: str,
    steps: int,
    spec: Spec,
    dtypes: Dtypes,
    device: torch.device,
) -> None:
    """Raises ConfigError if a rollout of `steps` vector steps does not fit into memory.

    Counts only observations, which take most of the memory. setting: the config key to name.
    """
    obs_bytes = 0
    for _, leaf in leaves(spec.obs):
        itemsize = 1 if leaf.dtype == "uint8" else getattr(torch, dtypes.get("obs", "float32")).itemsize
        obs_bytes += math.prod(leaf.shape or ()) * itemsize // num_frames(leaf, spec.frame_stack)
    rollout_bytes = obs_bytes * (steps + 1) * spec.num_envs
    memory.check_fits(f"{setting}, env.num_envs={spec.num_envs}", rollout_bytes, device)


class Rollout:
    """Collects vector steps and returns them as one batch for an on-policy agent.

    Every observation is stored once: those acted on, the successors of the last step, and the final observations of
    episodes that ended before. Of stacked images only the newest frame is stored; near the start of an episode its
    first frame is repeated, as in replay.

    dtypes: `algo.loop.dtypes`, the types in which floats are stored.
    """

    def __init__(self, spec: Spec, dtypes: Dtypes = MappingProxyType({})) -> None:
        self.obs_dtype = dtypes.get("obs", "float32")
        self.num_frames = num_frames(spec.obs, spec.frame_stack)
        self.steps: list[Batch] = []
        self.earlier: Any = None  # older frames of the first observations, oldest first, [(stack - 1) * env, ...]
        self.obs: list[Obs] = []  # observations acted on, [env, ...]
        self.final: list[Obs | None] = []  # true successors, [env, ...]; None if they are the next observations
        self.last: Any = None  # true successors of the last step

    def add(self, step: Step) -> None:
        """Adds one vector step."""
        obs, next_obs = self._stored(step["obs"]), self._stored(step["next_obs"])
        if not self.steps:
            self.earlier = mapped(_older, self.num_frames, obs)
        self.steps.append({key: value for key, value in step.items() if key not in ELSEWHERE})
        self.obs.append(mapped(_newest, self.num_frames, obs))
        self.last = next_obs
        final = None
        if step["next_obs"] is not step["following"]:
            final = mapped(_newest, self.num_frames, next_obs)
        self.final.append(final)

    def _stored(self, obs: Obs) -> Obs:
        if self.obs_dtype == "float32":
            return obs
        return stored_as(self.obs_dtype, obs, "algo.loop.dtypes.obs", "an observation")

    def batch(self) -> Batch:
        """Returns all steps as one batch [time, env, ...].

        `next_obs` is the true successor, also where an episode ended. It is `Indexed` and shares its rows with `obs`.
        `obs` of stacked images is `Indexed` too, and so are observations that are stored with 16 bits.
        """
        batch: Batch = stack(self.steps)
        ended = batch["terminated"] | batch["truncated"]
        has_final = [final is not None for final in self.final]
        ended &= torch.tensor(has_final, device=ended.device).unsqueeze(-1)
        ended[-1] = False  # `last` holds the successors of the last step
        finals = [index(self.final[t], ended[t]) for t in ended.any(1).nonzero().flatten().tolist()]
        rows = joined([self.earlier, *self.obs, mapped(_newest, self.num_frames, self.last), *finals])

        def leaf(num_frames: int, stored: Tensor) -> tuple[Tensor | Indexed, Indexed]:
            if num_frames == 1:
                obs: Tensor | Indexed = stored[: ended.numel()].unflatten(0, ended.shape)
                if stored.dtype in HALVES:
                    obs = Indexed(stored, torch.arange(ended.numel(), device=stored.device).view_as(ended).int())
                return obs, Indexed(stored, _successors(ended, num_older=0).int())
            obs_index, next_index = _stacks(batch["first"], ended, num_frames)
            return Indexed(stored, obs_index.int(), stacked=True), Indexed(stored, next_index.int(), stacked=True)

        pairs = mapped(leaf, self.num_frames, rows)
        obs = mapped(lambda pair: pair[0], pairs)
        next_obs = mapped(lambda pair: pair[1], pairs)
        return {"obs": obs, "next_obs": next_obs} | batch


def num_frames(space: spaces.Space, frame_stack: int) -> Any:
    """Returns how many frames an observation stacks: `frame_stack` for images, else 1. For a Dict, a dict of these."""
    if isinstance(space, spaces.Dict):
        return {key: num_frames(subspace, frame_stack) for key, subspace in space.items()}
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

    def opened(rows: Tensor, obs: Any, next_index: Tensor) -> tuple[Tensor | Indexed, Indexed]:
        stacked = next_index.dim() > num_leading
        if stacked or rows.dtype in HALVES:
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
