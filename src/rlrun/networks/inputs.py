"""Flat vectors from the observations and actions of any Gymnasium space, as torsos read them."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from rlrun.errors import ConfigError
from rlrun.functional.choices import one_hot
from rlrun.nested import joined, mapped
from rlrun.types import MASK


def is_image(space: Space) -> bool:
    """Whether a space holds bytes of at least 16 pixels a side, with channels or stacked frames first, or channels
    last."""
    if not isinstance(space, spaces.Box) or space.dtype != "uint8" or len(space.shape) != 3:
        return False
    return min(space.shape[1:]) >= 16 or channels_last(space)


def channels_last(space: Space) -> bool:
    """Whether an image is [height, width, channels], as Gymnasium renders: at most 4 channels."""
    height, width, channels = space.shape  # type: ignore[misc]
    return channels <= 4 and min(height, width) >= 16


def leaves(space: Space, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Space]]:
    """Yields the parts of a space that hold no others, each with its keys. Action masks are no input of a network."""
    if not isinstance(space, spaces.Dict):
        yield path, space
        return
    for key, part in space.items():
        if key != MASK:
            yield from leaves(part, (*path, key))


def part(x: Any, path: tuple[str, ...]) -> Any:
    """Returns the entry of an observation under the keys."""
    for key in path:
        x = x[key]
    return x


class Flatten(nn.Module):
    """One space to [batch, size]: its parts side by side, boxes flattened, bytes from 0 to 1, discrete values one-hot.

    `skip` decides which parts are left out.
    """

    def __init__(self, space: Space, skip: Callable[[Space], bool] | None = None):
        super().__init__()
        self.leaves: list[tuple[tuple[str, ...], Space]] = []
        self.size = 0
        for path, leaf in leaves(space):
            if skip is None or not skip(leaf):
                self.leaves.append((path, leaf))
                self.size += _size(leaf)

    def forward(self, x: Any) -> Tensor:
        parts = [_flattened(leaf, part(x, path)) for path, leaf in self.leaves]
        return beside(parts)


def beside(parts: list[Tensor]) -> Tensor:
    """Returns vectors [..., size] side by side; a single one without a copy."""
    if len(parts) == 1:
        return parts[0]
    return torch.cat(parts, -1)


def _size(space: Space) -> int:
    match space:
        case spaces.Box() | spaces.MultiBinary():
            return int(torch.Size(space.shape).numel())
        case spaces.Discrete():
            return int(space.n)
        case spaces.MultiDiscrete():
            return int(space.nvec.sum())
    raise ConfigError(f"network: observations of {space} are not supported, for they have no fixed size")


def _flattened(space: Any, x: Tensor) -> Tensor:
    match space:
        case spaces.Box() | spaces.MultiBinary():
            return _flattened_numbers(space, x)
        case spaces.Discrete():
            return one_hot(x - int(space.start), int(space.n))
    return _flattened_decisions(space, x)


def _flattened_numbers(space: Any, x: Tensor) -> Tensor:
    """Returns numbers [..., size] of a Box or MultiBinary. Members of an ensemble may have inputs of their own:
    [members, batch, ...]."""
    num_leading = x.dim() - len(space.shape)
    leading = x.shape[:num_leading]
    flat = x.reshape(*leading, _size(space)).float()
    if space.dtype != "uint8":
        return flat
    largest = max(1.0, float(space.high.max()))
    return flat / largest


def _flattened_decisions(space: Any, x: Tensor) -> Tensor:
    """Returns one-hot vectors [..., size] of the decisions of a MultiDiscrete, side by side."""
    decisions = x.flatten(-len(space.shape)).unbind(-1)
    one_hots = []
    for decision, start, n in zip(decisions, space.start.flat, space.nvec.flat, strict=True):
        one_hots.append(one_hot(decision - int(start), int(n)))
    return torch.cat(one_hots, -1)


def concatenated(obs: Any, others: Any) -> Any:
    """Returns two batches of observations, one behind the other: [batch of both, ...]."""
    return joined([obs, others])


def merged(obs: Any, time: int, batch: int) -> Any:
    """Returns the first `time` steps of the first `batch` sequences [time, batch, ...] as [time * batch, ...]."""
    return mapped(lambda x: x[:time, :batch].flatten(0, 1), obs)
