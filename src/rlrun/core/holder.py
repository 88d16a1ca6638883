"""Modules that are asked for their parts many times a step."""

from typing import Any

from torch import nn


class Holder(nn.Module):
    """Finds its parts as plain attributes, where nn.Module searches for them; and sets plain values as such, of each of
    which nn.Module asks whether it is a parameter."""

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, nn.Module):
            super().__setattr__(name, value)
        object.__setattr__(self, name, value)
