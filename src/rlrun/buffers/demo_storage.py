"""Compact storage of demonstrations: every frame of a stack once, and floats in a chosen type."""

from collections.abc import Mapping
from typing import Literal, TypedDict

import torch
from torch import Tensor

from rlrun.buffers.dtypes import FloatType, restored, stored_as
from rlrun.nested import mapped
from rlrun.types import Obs


class Demo(TypedDict, total=False):
    """A demonstration. The pools of `Demos` hold packed ones, which `restored` unpacks."""

    obs: Obs  # [steps + 1, ...]
    action: Tensor  # [steps, ...]
    reward: Tensor  # [steps]
    terminated: bool
    kind: Literal["given", "own", "value"]
    worth: float  # return of a reward demonstration; highest predicted value of a value demonstration


class DemoStorage:
    """Packs demonstrations for memory and snapshots, and restores them for replay.

    dtypes: names of the torch types in which the floats of `obs`, `action` and `reward` are stored. Integers, such as
    images, keep their type. frame_stack: number of frames in an observation, as in `Spec`.
    """

    def __init__(self, dtypes: Mapping[Literal["obs", "action", "reward"], FloatType], frame_stack: int):
        self.dtypes = dtypes
        self.frame_stack = frame_stack

    def packed(self, demo: Demo) -> Demo:
        """Returns a demonstration as it is stored. Raises ConfigError if a type cannot hold one of its numbers."""
        obs = mapped(self._newest_frames, demo["obs"])
        packed = demo | {"obs": obs}
        for name, dtype in self.dtypes.items():
            packed[name] = stored_as(dtype, packed[name], f"algo.buffer.dtypes.{name}", "a demonstration")
        return packed

    def restored(self, demo: Demo) -> Demo:
        """Returns a stored demonstration with whole stacks and floats of type float32."""
        whole = demo.copy()
        for name in self.dtypes:
            whole[name] = restored(demo[name])
        return whole | {"obs": mapped(self._stacks, whole["obs"])}

    def _newest_frames(self, obs: Tensor) -> Tensor:
        """Returns stacks [steps + 1, stack, ...] as their newest frames [steps + 1, 1, ...].

        Other observations, and stacks that cannot be rebuilt from these frames, are returned as they are.
        """
        is_stack = self.frame_stack > 1 and obs.dim() > 2 and obs.shape[1] == self.frame_stack
        if not is_stack:
            return obs
        newest = obs[:, -1:].clone()
        if torch.equal(self._stacks(newest), obs):
            return newest
        return obs

    def _stacks(self, frames: Tensor) -> Tensor:
        """Returns the stacks of frames [steps + 1, 1, ...]. The first frame is repeated at the start of an episode."""
        is_frame = self.frame_stack > 1 and frames.dim() > 2 and frames.shape[1] == 1
        if not is_frame:
            return frames
        timestep = torch.arange(len(frames), device=frames.device)
        frames_back = torch.arange(self.frame_stack - 1, -1, -1, device=frames.device)
        return frames[(timestep[:, None] - frames_back).clamp(min=0), 0]
