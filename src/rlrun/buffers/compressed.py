"""Storage of image frames as LZ4 blocks: they need less memory, often a tenth, but take longer to write and to read."""

import math

import numpy as np
import torch
from torch import Tensor

from rlrun.imports import check_extra

CPU = torch.device("cpu")


class Compressed:
    """A uint8 tensor [capacity, num_envs, *frame] of which every frame is compressed on its own, on the CPU.

    The frame of environment `env` at place `place` has the flat index place * num_envs + env. Frames that were never
    written are zero. Raises ConfigError if the package lz4 is not installed.
    """

    device = CPU

    def __init__(self, shape: tuple[int, ...]):
        check_extra("lz4", "algo.buffer.compression=lz4")
        import lz4.block

        self.lz4 = lz4.block
        self.num_envs = shape[1]
        self.frame_shape = shape[2:]
        empty = self._compressed(torch.zeros(self.frame_shape, dtype=torch.uint8))
        self.blocks = [empty] * (shape[0] * self.num_envs)  # the compressed frames, by flat index

    def row_bytes(self, num_written: int) -> float:
        """Returns the mean bytes of the num_envs frames at one place, over the first `num_written` places."""
        written = self.blocks[: num_written * self.num_envs]
        return self.num_envs * sum(map(len, written)) / max(1, len(written))

    def __setitem__(self, place: object, frames: Tensor) -> None:
        """Writes frames [num_envs, ...] at one place, or frames [places, num_envs, ...] at several places."""
        flat_index = self._flat_index(torch.as_tensor(place))
        frames = frames.cpu().view(-1, *self.frame_shape)
        for i, frame in zip(flat_index.tolist(), frames, strict=True):
            self.blocks[i] = self._compressed(frame)

    def __getitem__(self, places: Tensor) -> Tensor:
        """Returns the frames of all environments at these places, [places, num_envs, ...]."""
        return self.select(self._flat_index(places)).view(-1, self.num_envs, *self.frame_shape)

    def select(self, flat_index: Tensor) -> Tensor:
        """Returns the frames at flat indices [n], [n, ...]."""
        frames = torch.empty(len(flat_index), *self.frame_shape, dtype=torch.uint8)
        pixels = frames.view(len(flat_index), math.prod(self.frame_shape)).numpy()  # shares the memory of `frames`
        for frame, i in zip(pixels, flat_index.tolist(), strict=True):
            frame[:] = np.frombuffer(self.lz4.decompress(self.blocks[i], uncompressed_size=frame.size), np.uint8)
        return frames

    def _flat_index(self, places: Tensor) -> Tensor:
        """Returns the flat indices of the frames of all environments at these places, [places * num_envs]."""
        return (places.view(-1, 1) * self.num_envs + torch.arange(self.num_envs)).flatten()

    def _compressed(self, frame: Tensor) -> bytes:
        block: bytes = self.lz4.compress(frame.contiguous().numpy(), store_size=False)
        return block
