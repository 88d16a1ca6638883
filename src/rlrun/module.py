"""A module for what is asked many times a step."""

from typing import Any

from torch import nn


class Module(nn.Module):
    """Its parts are found at once, while nn.Module searches for them, a microsecond each time; and plain values are set
    without asking whether they are parameters. Registered buffers are only ever changed in place."""

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, nn.Module):
            super().__setattr__(name, value)
        object.__setattr__(self, name, value)
