"""A module whose attributes are read many times a step."""

from typing import Any

from torch import nn


class Module(nn.Module):
    """Submodules are plain attributes too, which saves the microsecond that nn.Module takes to find one, and plain
    values are set without a check for parameters. Registered buffers must only be changed in place."""

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, nn.Module):
            super().__setattr__(name, value)
        object.__setattr__(self, name, value)
