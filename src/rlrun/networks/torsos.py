"""Torsos: from observations (and actions) to features. Heads belong to the algorithms."""

import math
from itertools import pairwise
from typing import Any, Literal

import torch
from gymnasium import Space
from torch import Tensor, nn
from torch.nn import functional as F

from rlrun.config.schema import PositiveInt, config
from rlrun.errors import ConfigError
from rlrun.networks.inputs import Flatten, channels_last, is_image
from rlrun.networks.linear import Linear
from rlrun.registry import register

Activation = Literal["relu", "tanh", "elu", "gelu", "silu"]
Init = Literal["uniform", "orthogonal"]
ACTIVATIONS = {"relu": F.relu, "tanh": torch.tanh, "elu": F.elu, "gelu": F.gelu, "silu": F.silu}


class Stack(nn.Module):
    """Linear layers with an activation after each: [..., inputs] -> [..., features]."""

    def __init__(self, inputs: int, hidden: list[int], activation: Activation, init: Init, members: int | None):
        super().__init__()
        gain = math.sqrt(2) if init == "orthogonal" else None
        widths = [inputs, *hidden]
        self.layers = nn.ModuleList(Linear(i, o, members, gain) for i, o in pairwise(widths))
        self.activation = ACTIVATIONS[activation]
        self.features = widths[-1]

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = self.activation(layer(x))
        return x


@register("network", "linear")
class LinearTorso(nn.Module):
    """No torso at all: the inputs, flat. A head on top makes a linear policy or value."""

    @config
    class Config:
        pass

    def __init__(self, cfg: Any, spaces: list[Space], members: int | None):
        super().__init__()
        self.inputs = nn.ModuleList(Flatten(space) for space in spaces)
        self.features = sum(part.size for part in self.inputs)

    def forward(self, *inputs: Any) -> Tensor:
        flat = [part(x) for part, x in zip(self.inputs, inputs, strict=True)]
        return flat[0] if len(flat) == 1 else torch.cat(flat, -1)


@register("network", "mlp")
class Mlp(nn.Module):
    """Fully connected layers over all inputs, laid flat side by side."""

    @config
    class Config:
        hidden: list[PositiveInt]
        activation: Activation
        init: Init

    def __init__(self, cfg: Any, spaces: list[Space], members: int | None):
        super().__init__()
        self.flat = LinearTorso(None, spaces, None)
        self.stack = Stack(self.flat.features, cfg.hidden, cfg.activation, cfg.init, members)
        self.features = self.stack.features

    def forward(self, *inputs: Any) -> Tensor:
        return self.stack(self.flat(*inputs))


class Convolutions(nn.Module):
    """The three convolutions of Nature DQN (doi 10.1038/nature14236): bytes [batch, C, H, W] -> [batch, features]."""

    def __init__(self, space: Space, init: Init):
        super().__init__()
        self.permute = channels_last(space)
        shape: Any = space.shape
        channels = shape[2] if self.permute else shape[0]
        self.layers = nn.ModuleList(
            nn.Conv2d(i, o, kernel, stride)
            for i, o, kernel, stride in ((channels, 32, 8, 4), (32, 64, 4, 2), (64, 64, 3, 1))
        )
        if init == "orthogonal":
            for layer in self.layers:
                nn.init.orthogonal_(layer.weight, math.sqrt(2))
                nn.init.zeros_(layer.bias)
        with torch.no_grad():
            self.features = self(torch.zeros(1, *shape, dtype=torch.uint8)).shape[1]

    def forward(self, x: Tensor) -> Tensor:
        x = (x.permute(0, 3, 1, 2) if self.permute else x).float() / 255
        for layer in self.layers:
            x = F.relu(layer(x))
        return x.flatten(1)


@register("network", "cnn")
class Cnn(nn.Module):
    """Nature DQN's convolutions over the image, other inputs joined behind them, then linear layers."""

    @config
    class Config:
        hidden: list[PositiveInt]
        activation: Activation
        init: Init

    def __init__(self, cfg: Any, spaces: list[Space], members: int | None):
        super().__init__()
        image, *others = spaces
        if not is_image(image) or sorted(image.shape)[1] < 36:  # type: ignore[type-var]
            raise ConfigError(f"network=cnn needs images of bytes [channels, height, width], 36 pixels a side or more; "
                              f"this environment has {image}; network=mlp reads anything")  # fmt: skip
        self.convolutions = nn.ModuleList(Convolutions(image, cfg.init) for _ in range(members or 1))
        self.others = LinearTorso(None, others, None)
        features = self.convolutions[0].features + self.others.features
        self.members = members
        self.stack = Stack(features, cfg.hidden, cfg.activation, cfg.init, members)
        self.features = self.stack.features

    def forward(self, image: Tensor, *others: Any) -> Tensor:
        seen = [convolution(image) for convolution in self.convolutions]
        x = seen[0] if self.members is None else torch.stack(seen)
        if others:
            x = torch.cat([x, self.others(*others).expand(*x.shape[:-1], -1)], -1)
        return self.stack(x)


@register("network", "auto")
def auto(cfg: Any, spaces: list[Space], members: int | None) -> nn.Module:
    """`cnn` for images, `mlp` for everything else."""
    return (Cnn if is_image(spaces[0]) else Mlp)(cfg, spaces, members)


auto.Config = Mlp.Config
