"""Storage of image frames as LZ4 blocks, which needs a tenth of the memory or less and more time to write and read."""

import math

import numpy as np
import torch
from torch import Tensor

from rlrun.errors import ConfigError

CPU = torch.device("cpu")


class Compressed:
    """A uint8 tensor [capacity, num_envs, *frame] of which every frame is compressed on its own, on the CPU.

    Frames that were never written are zero. Raises ConfigError if the package lz4 is not installed.
    """

    device = CPU

    def __init__(self, shape: tuple[int, ...]):
        try:
            import lz4.block
        except ImportError as error:
            raise ConfigError("algo.buffer.compression=lz4: needs a package; pip install 'rlrun[lz4]'") from error
        self.lz4 = lz4.block
        self.num_envs = shape[1]
        self.frame_shape = shape[2:]
        empty = self._packed(torch.zeros(self.frame_shape, dtype=torch.uint8))
        self.blocks = [empty] * (shape[0] * self.num_envs)

    def row_bytes(self, rows: int) -> float:
        """Returns the mean size of the rows at the first places, of which `rows` were written."""
        written = self.blocks[: rows * self.num_envs]
        return self.num_envs * sum(map(len, written)) / max(1, len(written))

    def __setitem__(self, place: object, frames: Tensor) -> None:
        """Writes frames [num_envs, ...] at one place, or frames [places, num_envs, ...] at several places."""
        rows = torch.as_tensor(place).view(-1, 1) * self.num_envs + torch.arange(self.num_envs)
        frames = frames.cpu().view(-1, *self.frame_shape)
        for index, frame in zip(rows.flatten().tolist(), frames, strict=True):
            self.blocks[index] = self._packed(frame)

    def __getitem__(self, places: Tensor) -> Tensor:
        """Returns the rows at these places, [places, num_envs, ...]."""
        rows = places.view(-1, 1) * self.num_envs + torch.arange(self.num_envs)
        return self.select(rows.flatten()).view(-1, self.num_envs, *self.frame_shape)

    def select(self, index: Tensor) -> Tensor:
        """Returns the frames at the flat indices place * num_envs + env, [index, ...]."""
        frames = torch.empty(len(index), *self.frame_shape, dtype=torch.uint8)
        rows = frames.view(len(index), math.prod(self.frame_shape)).numpy()
        for row, block in zip(rows, index.tolist(), strict=True):
            row[:] = np.frombuffer(self.lz4.decompress(self.blocks[block], uncompressed_size=row.size), np.uint8)
        return frames

    def _packed(self, frame: Tensor) -> bytes:
        block: bytes = self.lz4.compress(frame.contiguous().numpy(), store_size=False)
        return block
