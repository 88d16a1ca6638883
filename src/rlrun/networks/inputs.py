"""Conversion of observations and actions of any Gymnasium space to flat vectors, the inputs of torsos."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from rlrun.errors import ConfigError
from rlrun.functional.choices import one_hot
from rlrun.nested import get
from rlrun.spaces import MixedSpace
from rlrun.types import MASK, Obs


def is_image(space: Space) -> bool:
    """Returns whether a space is a uint8 Box that holds an image, or stacked images, of at least 16 x 16 pixels.

    Accepts [channels or frames, height, width], [height, width, channels] and [frames, height, width, channels].
    """
    if not isinstance(space, spaces.Box) or space.dtype != "uint8" or len(space.shape) not in (3, 4):
        return False
    if channels_last(space):
        return True
    return len(space.shape) == 3 and min(space.shape[1:]) >= 16


def largest_byte(space: Any) -> float:
    """Returns the upper bound of a uint8 Box, at least 1. Networks divide the values of the Box by it."""
    return max(1.0, float(space.high.max()))


def channels_last(space: Space) -> bool:
    """Returns whether images are [..., height, width, channels] with at most 4 channels, as Gymnasium renders them."""
    height, width, channels = space.shape[-3:]  # type: ignore[index]
    return channels <= 4 and min(height, width) >= 16


def leaves(space: Space, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Space]]:
    """Yields (keys, space) of every entry of nested Dict spaces; ((), space) if the space is not a Dict.

    Skips action masks, because networks do not receive them.
    """
    if not isinstance(space, spaces.Dict):
        yield path, space
        return
    for key, subspace in space.items():
        if key != MASK:
            yield from leaves(subspace, (*path, key))


def random_rows(space: Space, rows: int) -> Obs:
    """Returns random values of a space [rows, ...] in the form that networks get them, the same in every call."""
    if isinstance(space, spaces.Dict):
        return {key: random_rows(part, rows) for key, part in space.items()}
    return torch.as_tensor(_random_array(space, rows))


def _random_array(space: Space, rows: int) -> np.ndarray:
    match space:
        case MixedSpace():
            choices = _random_array(space.discrete, rows).astype(np.float32)
            return np.concatenate([choices, _random_array(space.continuous, rows)], -1)
        case spaces.Box() if space.dtype != "uint8":  # bounds may be those of float32, whose samples overflow
            normal = np.random.default_rng(0).standard_normal((rows, *space.shape))
            return np.clip(normal, space.low, space.high).astype(np.float32)
    space = copy.deepcopy(space)  # the numbers that an environment draws from its space stay the same
    space.seed(0)
    return np.stack([space.sample() for _ in range(rows)])


class FlattenInputs(nn.Module):
    """Converts observations of one space to vectors [batch, size] by concatenating the entries of the space.

    Boxes are flattened, bytes are scaled to [0, 1] by their upper bound, and discrete values become one-hot vectors.
    Entries for which `skip` returns True are left out.
    """

    def __init__(self, space: Space, skip: Callable[[Space], bool] | None = None):
        super().__init__()
        kept = [(path, leaf) for path, leaf in leaves(space) if skip is None or not skip(leaf)]
        self.leaves = tuple(kept)
        self.size = sum(_size(leaf) for _, leaf in kept)

    def forward(self, x: Obs) -> Tensor:
        vectors = [_flattened(leaf, get(x, path)) for path, leaf in self.leaves]
        return concatenated(vectors)


def concatenated(vectors: list[Tensor]) -> Tensor:
    """Returns the concatenation of vectors [..., size] along the last dimension; a single vector is not copied.

    Vectors [batch, size] are repeated for every member if others are [members, batch, size].
    """
    if len(vectors) == 1:
        return vectors[0]
    ranks = {x.dim() for x in vectors}
    if len(ranks) > 1:
        with_members = max(vectors, key=Tensor.dim)
        vectors = [x.expand(*with_members.shape[:-1], -1) for x in vectors]
    return torch.cat(vectors, -1)


def _size(space: Space) -> int:
    match space:
        case spaces.Box() | spaces.MultiBinary():
            return int(torch.Size(space.shape).numel())
        case spaces.Discrete():
            return int(space.n)
        case spaces.MultiDiscrete():
            return int(space.nvec.sum())
        case MixedSpace():
            return _size(space.discrete) + _size(space.continuous)
    raise ConfigError(f"network: observations of {space} are not supported, because they have no fixed size")


def _flattened(space: Space, x: Tensor) -> Tensor:
    match space:
        case spaces.Box() | spaces.MultiBinary():
            return _flattened_numbers(space, x)
        case spaces.Discrete():
            return one_hot(x - int(space.start), int(space.n))
        case MixedSpace():
            choices = x[..., : space.num_choices]
            continuous = x[..., space.num_choices :]
            return torch.cat([_flattened_decisions(space.discrete, choices), continuous], -1)
    return _flattened_decisions(space, x)


def _flattened_numbers(space: Any, x: Tensor) -> Tensor:
    """Returns values [..., size] of a Box or MultiBinary.

    x may have any number of leading dimensions: [batch, ...], or [members, batch, ...] if every member of an ensemble
    has its own input.
    """
    num_leading = x.dim() - len(space.shape)
    leading = x.shape[:num_leading]
    flat = x.reshape(*leading, _size(space)).float()
    if space.dtype != "uint8":
        return flat
    return flat / largest_byte(space)


def _flattened_decisions(space: Any, x: Tensor) -> Tensor:
    """Returns the concatenated one-hot vectors [..., size] of all dimensions of a MultiDiscrete."""
    decisions = x.flatten(-len(space.shape)).unbind(-1)
    one_hots = []
    for decision, start, n in zip(decisions, space.start.flat, space.nvec.flat, strict=True):
        one_hots.append(one_hot(decision - int(start), int(n)))
    return torch.cat(one_hots, -1)
