"""Compact storage of demonstrations: every frame of a stack once, and floats in a chosen type."""

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

import torch
from torch import Tensor

from rlrun.errors import ConfigError
from rlrun.nested import leaves, mapped
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

    def __init__(self, dtypes: Mapping[Literal["obs", "action", "reward"], str], frame_stack: int):
        self.dtypes = dtypes
        self.frame_stack = frame_stack

    def packed(self, demo: Demo) -> Demo:
        """Returns a demonstration as it is stored. Raises ConfigError if a type cannot hold one of its numbers."""
        obs = mapped(self._newest_frames, demo["obs"])
        packed = demo | {"obs": obs}
        for name, dtype in self.dtypes.items():
            packed[name] = mapped(as_type(getattr(torch, dtype)), packed[name])
            if not all(bool(leaf.isfinite().all()) for leaf in leaves(packed[name])):
                raise ConfigError(f"algo.buffer.dtypes.{name}={dtype}: is too small for the numbers of a demonstration")
        return packed

    def restored(self, demo: Demo) -> Demo:
        """Returns a stored demonstration with whole stacks and floats of type float32."""
        restored = demo.copy()
        for name in self.dtypes:
            restored[name] = mapped(as_type(torch.float32), demo[name])
        return restored | {"obs": mapped(self._stacks, restored["obs"])}

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


def as_type(dtype: torch.dtype) -> Any:
    """Returns a function that converts tensors of floats to `dtype`, and returns other tensors as they are."""

    def convert(leaf: Tensor) -> Tensor:
        if leaf.is_floating_point():
            return leaf.to(dtype)
        return leaf

    return convert
