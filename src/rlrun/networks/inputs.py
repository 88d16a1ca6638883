"""From any Gymnasium space to flat numbers: what every torso reads."""

from typing import Any

import torch
from gymnasium import Space, spaces
from torch import Tensor, nn
from torch.nn import functional as F

from rlrun.errors import ConfigError


def is_image(space: Space) -> bool:
    """Bytes of at least 16 pixels a side, with channels or stacked frames first, or channels last."""
    if not isinstance(space, spaces.Box) or space.dtype != "uint8" or len(space.shape) != 3:
        return False
    return min(space.shape[1:]) >= 16 or channels_last(space)


def channels_last(space: Space) -> bool:
    """[height, width, channels], as Gymnasium renders: at most 4 channels."""
    height, width, channels = space.shape  # type: ignore[misc]
    return channels <= 4 and min(height, width) >= 16


class Flatten(nn.Module):
    """One space to [batch, size]: boxes laid flat, discrete values one-hot, Dict entries side by side by key."""

    def __init__(self, space: Space):
        super().__init__()
        self.space = space
        self.size = _size(space)

    def forward(self, x: Any) -> Tensor:
        return _flatten(self.space, x)


def _size(space: Space) -> int:
    match space:
        case spaces.Box() | spaces.MultiBinary():
            return int(torch.Size(space.shape).numel())
        case spaces.Discrete():
            return int(space.n)
        case spaces.MultiDiscrete():
            return int(space.nvec.sum())
        case spaces.Dict():
            return sum(_size(part) for key, part in space.items() if key != "action_mask")
    raise ConfigError(f"network: cannot read observations of {space}; flatten them with a wrapper")


def _flatten(space: Space, x: Any) -> Tensor:
    match space:
        case spaces.Box() | spaces.MultiBinary():
            # members of an ensemble may have inputs of their own: [members, batch, ...]
            flat = x.reshape(*x.shape[: x.dim() - len(space.shape)], _size(space)).float()
            return flat / 255 if is_image(space) else flat
        case spaces.Discrete():
            return F.one_hot(x.long() - int(space.start), int(space.n)).float()
        case spaces.MultiDiscrete():
            counted = (x.long() - torch.as_tensor(space.start, device=x.device)).flatten(-len(space.shape))
            hot = [F.one_hot(part, int(n)) for part, n in zip(counted.unbind(-1), space.nvec.flat, strict=True)]
            return torch.cat(hot, -1).float()
    parts: Any = space
    return torch.cat([_flatten(part, x[key]) for key, part in parts.items() if key != "action_mask"], -1)
