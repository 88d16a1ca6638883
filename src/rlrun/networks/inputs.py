"""From any Gymnasium space to flat numbers: what every torso reads."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from rlrun.errors import ConfigError
from rlrun.functional.choices import one_hot
from rlrun.nested import mapped
from rlrun.types import MASK


def is_image(space: Space) -> bool:
    """Bytes of at least 16 pixels a side, with channels or stacked frames first, or channels last."""
    if not isinstance(space, spaces.Box) or space.dtype != "uint8" or len(space.shape) != 3:
        return False
    return min(space.shape[1:]) >= 16 or channels_last(space)


def channels_last(space: Space) -> bool:
    """[height, width, channels], as Gymnasium renders: at most 4 channels."""
    height, width, channels = space.shape  # type: ignore[misc]
    return channels <= 4 and min(height, width) >= 16


def leaves(space: Space, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Space]]:
    """The parts of a space that hold no others, each with its keys. Action masks are no input of a network."""
    if isinstance(space, spaces.Dict):
        for key, part in space.items():
            if key != MASK:
                yield from leaves(part, (*path, key))
    else:
        yield path, space


def part(x: Any, path: tuple[str, ...]) -> Any:
    """What lies under the keys."""
    for key in path:
        x = x[key]
    return x


class Flatten(nn.Module):
    """One space to [batch, size]: its parts side by side, boxes laid flat, bytes from 0 to 1, discrete values one-hot.

    `skip` says which parts are left out.
    """

    def __init__(self, space: Space, skip: Callable[[Space], bool] = lambda space: False):
        super().__init__()
        self.leaves = [(path, leaf) for path, leaf in leaves(space) if not skip(leaf)]
        self.size = sum(_size(leaf) for _, leaf in self.leaves)

    def forward(self, x: Any) -> Tensor:
        flat = [_flatten(leaf, part(x, path)) for path, leaf in self.leaves]
        return flat[0] if len(flat) == 1 else torch.cat(flat, -1)


def _size(space: Space) -> int:
    match space:
        case spaces.Box() | spaces.MultiBinary():
            return int(torch.Size(space.shape).numel())
        case spaces.Discrete():
            return int(space.n)
        case spaces.MultiDiscrete():
            return int(space.nvec.sum())
    raise ConfigError(f"network: observations of {space} are not supported, for they have no fixed size")


def _flatten(space: Any, x: Tensor) -> Tensor:
    match space:
        case spaces.Box() | spaces.MultiBinary():
            # members of an ensemble may have inputs of their own: [members, batch, ...]
            flat = x.reshape(*x.shape[: x.dim() - len(space.shape)], _size(space)).float()
            return flat / max(1.0, float(space.high.max())) if space.dtype == "uint8" else flat
        case spaces.Discrete():
            return one_hot(x - int(space.start), int(space.n))
    parts = x.flatten(-len(space.shape)).unbind(-1)
    sizes = zip(space.start.flat, space.nvec.flat, strict=True)
    return torch.cat([one_hot(part - int(start), int(n)) for part, (start, n) in zip(parts, sizes, strict=True)], -1)


def concatenated(obs: Any, others: Any) -> Any:
    """Two batches of observations, one behind the other: [batch of both, ...]."""
    if isinstance(obs, dict):
        return {key: concatenated(value, others[key]) for key, value in obs.items()}
    return torch.cat([obs, others])


def merged(obs: Any, time: int, batch: int) -> Any:
    """The first `time` steps of the first `batch` sequences [time, batch, ...], side by side: [time * batch, ...]."""
    return mapped(lambda x: x[:time, :batch].flatten(0, 1), obs)
