"""Observations as the models of intrinsic rewards get them."""

from types import EllipsisType
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlrun.core.statistics import NoStatistics, Statistics, statistics_of
from rlrun.networks.inputs import is_image, largest_byte
from rlrun.types import MASK, Obs


class IntrinsicInputs(nn.Module):
    """Standardises and clips boxes by the part `algo.intrinsic.obs_statistics`, `none` does not. Of stacked images, the
    newest frames are kept.

    frame_stack: number of stacked frames. frames: number of the newest that are kept; 0: all. `space` is the space of a
    preprocessed observation.
    """

    def __init__(self, space: Any, frame_stack: int, clip: float, statistics: dict[str, object], frames: int = 0):
        super().__init__()
        self.space = space
        self.clip = clip
        self.values = statistics
        self.frames = frames
        self.newest: slice | None = None  # the newest frames, in the first dimension of the space; None: all of it
        self.parts: Any = nn.ModuleDict()  # one view for each entry of a Dict
        self.statistics: Statistics | None = None  # of a box
        if isinstance(space, spaces.Dict):
            self._add_parts(frame_stack)
        if isinstance(space, spaces.Box):
            self._add_moments(frame_stack)

    def _add_parts(self, frame_stack: int) -> None:
        part_spaces = {}
        for key, part_space in self.space.items():
            if key != MASK:
                view = IntrinsicInputs(part_space, frame_stack, self.clip, self.values, self.frames)
                self.parts[key] = view
                part_spaces[key] = view.space
        self.space = spaces.Dict(part_spaces)

    def _add_moments(self, frame_stack: int) -> None:
        space = self.space
        if 0 < self.frames < frame_stack and is_image(space):
            frame_length = space.shape[0] // frame_stack
            self.newest = slice(-self.frames * frame_length, None)
            self.space = spaces.Box(space.low[self.newest], space.high[self.newest], dtype=space.dtype.type)
        self.output_scale = 1.0  # factor of standardised observations
        if is_image(self.space):
            # networks divide images by `largest_byte`, so their input is then from -1 to 1
            self.output_scale = largest_byte(self.space) / self.clip
        self.statistics = statistics_of(self.values, self.space.shape, "algo.intrinsic.obs_statistics")

    def add(self, obs: Any, weight: Tensor) -> None:
        """Adds observations [..., env, ...] to the pending statistics, without masked rows."""
        for key, part in self.parts.items():
            part.add(obs[key], weight)
        if self.statistics is not None:
            newest = self.newest_frames(obs)
            self.statistics.add(newest[weight > 0])

    def publish(self) -> None:
        """Makes all pending statistics live."""
        for part in self.parts.values():
            part.publish()
        if self.statistics is not None:
            self.statistics.publish()

    def forward(self, obs: Any) -> Obs:
        if self.parts:
            return {key: part(obs[key]) for key, part in self.parts.items()}
        if self.statistics is None:
            return obs
        newest = self.newest_frames(obs)
        if isinstance(self.statistics, NoStatistics):
            return newest
        mean, var = self.statistics.available()
        scale = (var + 1e-8).rsqrt()
        standardised = (newest - mean) * scale
        clipped = standardised.clamp(-self.clip, self.clip)
        return (clipped * self.output_scale).to(torch.float32)

    def newest_frames(self, obs: Tensor) -> Tensor:
        """Returns stacked images [..., *space] without their older frames, which come first in the space."""
        if self.newest is None:
            return obs
        other_dims = [slice(None)] * (len(self.space.shape) - 1)
        where: tuple[EllipsisType | slice, ...] = (..., self.newest, *other_dims)
        return obs[where]
