"""An nn.Module with faster access to its attributes, for objects whose attributes are read many times a step."""

from torch import nn


class Module(nn.Module):
    """Stores submodules as plain attributes too, which saves the microsecond of nn.Module's lookup.

    Other values are set without nn.Module's check for parameters. Registered buffers must only be changed in place.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if isinstance(value, nn.Module):
            super().__setattr__(name, value)
        object.__setattr__(self, name, value)
