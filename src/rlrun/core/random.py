"""Named streams of random numbers, all spawned from one seed. A new stream does not change the other streams."""

import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from rlrun.functional import fused


def sequence(seed: int, name: str) -> np.random.SeedSequence:
    """Returns the seed sequence of a named stream, spawned from `seed` with the CRC-32 of `name` as spawn key."""
    return np.random.SeedSequence(seed, spawn_key=(zlib.crc32(name.encode()),))


def seed_for(seed: int, name: str) -> int:
    """Returns the 63-bit seed of a named stream."""
    return int(sequence(seed, name).generate_state(1, np.uint64)[0] >> 1)


class Stream(nn.Module):
    """A generator of random numbers on one device. Its state is part of every snapshot."""

    def __init__(self, seed: int, name: str, device: torch.device | str = "cpu"):
        super().__init__()
        self.name, self.generator = name, torch.Generator(device)
        self.name_in_all_shards = name  # `name` may be that of a shard
        self.device = self.generator.device
        self.seed = seed
        self.generator.manual_seed(seed_for(seed, name))
        self.rows: dict[int, torch.Generator] = {}  # between `split` and `join`: the generator of each row of a sample

    def normal(self, *shape: int) -> Tensor:
        return self._draw(torch.randn, shape)

    def uniform(self, *shape: int) -> Tensor:
        """Returns uniform numbers in [0, 1)."""
        return self._draw(torch.rand, shape)

    def gamma(self, shape: Tensor) -> Tensor:
        """Returns one draw from Gamma(shape, rate 1) for each entry of `shape`."""
        if not self.rows:
            return fused.gamma(shape, generator=self.generator)
        rows = [fused.gamma(row_shape, generator=self.rows[row]) for row, row_shape in enumerate(shape)]
        return torch.stack(rows)

    def integers(self, high: int, *shape: int, low: int = 0) -> Tensor:
        """Returns integers in [low, high)."""
        return self._draw(torch.randint, shape, low, high)

    def gumbel(self, *shape: int) -> Tensor:
        """Returns Gumbel(0, 1) noise: the argmax of logits plus this noise is a sample from their softmax."""
        return -(-self.uniform(*shape).clamp(min=1e-20).log()).log()

    def permutation(self, n: int) -> Tensor:
        """Returns the integers from 0 to n - 1 in random order. `split` has no effect on it."""
        return torch.randperm(n, generator=self.generator, device=self.device)

    def split(self, row: int, name: str) -> None:
        """Gives this row of every sample its own generator, seeded by `name`, until `join` is called.

        In all shards it is the same.

        Every row of a sample must have been split before the sample is drawn.
        """
        seed = seed_for(self.seed, f"{self.name_in_all_shards} {name}")
        self.rows[row] = torch.Generator(self.device).manual_seed(seed)

    def join(self) -> None:
        """Draws whole samples from the generator of the stream again, after `split`."""
        self.rows = {}

    def _draw(self, draw: Callable[..., Tensor], shape: tuple[int, ...], *bounds: int) -> Tensor:
        if not self.rows:
            return draw(*bounds, shape, generator=self.generator, device=self.device)
        rows = [draw(*bounds, shape[1:], generator=self.rows[row], device=self.device) for row in range(shape[0])]
        return torch.stack(rows)

    def get_extra_state(self) -> dict[str, object]:
        return {"device": self.device.type, "state": self.generator.get_state()}

    def set_extra_state(self, state: dict[str, object]) -> None:
        """Restores the generator. If the state comes from another kind of device, the generator gets a new seed."""
        if state["device"] == self.device.type:
            given: Tensor = state["state"].cpu()  # type: ignore[attr-defined]
            if self.device.type == "cpu":
                check_position(given)
            self.generator.set_state(given)
        else:
            self.generator.manual_seed(seed_for(self.seed, f"{self.name} on {self.device.type}"))


def check_position(state: Tensor) -> None:
    """Raises ValueError if a generator of the CPU would read beyond the 624 numbers of its state.

    Torch does not check that, and a snapshot may be untrusted.
    """
    left, position = struct.unpack_from("<i4xQ", state.numpy().tobytes(), 8)  # after the seed
    if left + position != 625 and (left, position) != (1, 0):
        raise ValueError(f"a random generator has {left} numbers left at position {position} of 624")


def streams_of(module: nn.Module) -> list[Stream]:
    """Returns all streams of a module, in the order of the module tree."""
    return [child for child in module.modules() if isinstance(child, Stream)]


def reseed_for_shard(module: nn.Module, shard: int) -> None:
    """Seeds the streams of a module by their names and the shard."""
    for stream in streams_of(module):
        stream.name = f"{stream.name} shard {shard}"
        stream.generator.manual_seed(seed_for(stream.seed, stream.name))


@contextmanager
def reseeded(module: nn.Module, name: str) -> Iterator[None]:
    """A context in which the streams of a module are seeded by `name`. At its end, their earlier state is restored."""
    streams = streams_of(module)
    # only states are exchanged, because recordings hold the generators
    kept = [stream.generator.get_state() for stream in streams]
    try:
        for stream in streams:
            stream.generator.manual_seed(seed_for(stream.seed, f"{stream.name} {name}"))
        yield
    finally:
        for stream, state in zip(streams, kept, strict=True):
            stream.generator.set_state(state)
