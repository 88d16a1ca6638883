"""Torsos: from observations (and actions) to features. Heads belong to the algorithms."""

import math
from collections.abc import Iterable
from functools import partial
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

import torch
from gymnasium import Space
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from rlrun import registry
from rlrun.config.schema import Part, Units, config
from rlrun.errors import ConfigError
from rlrun.networks.inputs import Flatten, channels_last, is_image, leaves, part
from rlrun.networks.linear import Linear
from rlrun.registry import register

Activation = Literal["relu", "tanh", "elu", "gelu", "silu"]
Init = Literal["uniform", "orthogonal"]
Convolution = Annotated[list[Units], Field(min_length=3, max_length=3)]  # channels, kernel, stride
NATURE = [[32, 8, 4], [64, 4, 2], [64, 3, 1]]  # doi 10.1038/nature14236
ACTIVATIONS = {"relu": F.relu, "tanh": torch.tanh, "elu": F.elu, "gelu": F.gelu, "silu": F.silu}


@config
class Layers:
    """Settings of the linear layers of a torso."""

    hidden: list[Units]
    activation: Activation
    init: Init
    norm: Annotated[dict[str, Any], Part("norm")]


class Stack(nn.Module):
    """Linear layers with an activation after each, and normalisation around it: [..., inputs] -> [..., features]."""

    def __init__(self, inputs: int, cfg: Any, members: int | None):
        super().__init__()
        gain = math.sqrt(2) if cfg.init == "orthogonal" else None
        widths = [inputs, *cfg.hidden]
        self.layers = nn.ModuleList(Linear(i, o, members, gain) for i, o in pairwise(widths))
        self.norm = registry.build("norm", cfg.norm, widths, members, path="network.norm")
        self.activation = ACTIVATIONS[cfg.activation]
        self.features = widths[-1]

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm.inputs(x)
        for i, layer in enumerate(self.layers):
            x = self.norm.hidden(i, layer(x), self.activation)
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
    class Config(Layers):
        pass

    def __init__(self, cfg: Any, spaces: list[Space], members: int | None):
        super().__init__()
        self.flat = LinearTorso(None, spaces, None)
        self.stack = Stack(self.flat.features, cfg, members)
        self.features = self.stack.features

    def forward(self, *inputs: Any) -> Tensor:
        return self.stack(self.flat(*inputs))


def orthogonal(layers: Iterable[nn.Module]) -> None:
    """Orthogonal weights with the gain of a ReLU, zero biases."""
    for layer in layers:
        if isinstance(layer, nn.Conv2d):
            nn.init.orthogonal_(layer.weight, math.sqrt(2))
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]


class Pixels(nn.Module):
    """Convolutional layers on bytes [batch, C, H, W] or [batch, H, W, C], seen from 0 to 1 -> [batch, features]."""

    def __init__(self, space: Space, cfg: Any):
        super().__init__()
        shape: Any = space.shape
        self.permute = channels_last(space)
        self.layers = self.build(shape[2] if self.permute else shape[0], cfg)
        if cfg.init == "orthogonal":
            orthogonal(self.modules())
        with torch.no_grad():
            self.features = self(torch.zeros(1, *shape, dtype=torch.uint8)).shape[1]

    def build(self, channels: int, cfg: Any) -> nn.ModuleList:
        raise NotImplementedError

    @staticmethod
    def smallest(cfg: Any) -> int:
        """Pixels a side that the layers need."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        last = self.permute
        if not last and torch.is_grad_enabled():
            # so that the first layer's gradient takes a CPU less than half the time. A stack of channels does what
            # contiguous(memory_format=torch.channels_last) does, in half of its time
            x, last = torch.stack(x.unbind(1), -1), True
        x = x.permute(0, 3, 1, 2) if last else x
        x = x.float() * (1 / 255)
        for layer in self.layers:
            x = F.relu(layer(x))
        return x.flatten(1)


class Convolutions(Pixels):
    """Convolutions without padding."""

    def build(self, channels: int, cfg: Any) -> nn.ModuleList:
        inputs = [channels, *(outputs for outputs, _, _ in cfg.convolutions)]
        sizes = zip(inputs, cfg.convolutions, strict=False)
        return nn.ModuleList(nn.Conv2d(i, o, kernel, stride) for i, (o, kernel, stride) in sizes)

    @staticmethod
    def smallest(cfg: Any) -> int:
        side = 1
        for _, kernel, stride in reversed(cfg.convolutions):
            side = (side - 1) * stride + kernel
        return side


class Residual(nn.Module):
    """x + two convolutions of it."""

    def __init__(self, channels: int):
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for layer in self.layers:
            y = layer(F.relu(y))
        return x + y


class ResidualSections(Pixels):
    """Sections of convolution, pooling and two residual blocks (IMPALA's deep network)."""

    def build(self, channels: int, cfg: Any) -> nn.ModuleList:
        return nn.ModuleList(
            nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.MaxPool2d(3, 2, padding=1), Residual(o), Residual(o))
            for i, o in pairwise([channels, *cfg.sections])
        )

    @staticmethod
    def smallest(cfg: Any) -> int:
        return 1  # they pad


@register("network", "cnn")
class Cnn(nn.Module):
    """An encoder of its own for every image among the inputs, everything else beside them, then linear layers."""

    encoder: ClassVar[type[Pixels]] = Convolutions

    @config
    class Config(Layers):
        convolutions: list[Convolution]

    def __init__(self, cfg: Any, spaces: list[Space], members: int | None):
        super().__init__()
        sees = partial(self.sees, cfg)
        images = [(i, path, leaf) for i, space in enumerate(spaces) for path, leaf in leaves(space) if sees(leaf)]
        if not images:
            name, smallest = type(self).__name__.lower(), max(16, self.encoder.smallest(cfg))
            raise ConfigError(
                f"network={name} needs images of bytes [channels, height, width], {smallest} a side or more; "
                f"this environment has {spaces[0]}, which is not supported; network=mlp reads anything"
            )
        self.places = [(i, path) for i, path, _ in images]
        self.convolutions = nn.ModuleList(
            nn.ModuleList(self.encoder(leaf, cfg) for _ in range(members or 1)) for _, _, leaf in images
        )
        self.others = nn.ModuleList(Flatten(space, skip=sees) for space in spaces)
        features = sum(encoders[0].features for encoders in self.convolutions) + sum(o.size for o in self.others)
        self.members = members
        self.stack = Stack(features, cfg, members)
        self.features = self.stack.features

    @classmethod
    def sees(cls, cfg: Any, space: Space) -> bool:
        """Whether a space is an image, large enough."""
        return is_image(space) and sorted(space.shape)[1] >= cls.encoder.smallest(cfg)  # type: ignore[type-var]

    def forward(self, *inputs: Any) -> Tensor:
        parts = []
        for (i, path), encoders in zip(self.places, self.convolutions, strict=True):
            seen = [encoder(part(inputs[i], path)) for encoder in encoders]  # type: ignore[union-attr]
            parts.append(seen[0] if self.members is None else torch.stack(seen))
        flat = [other(x) for other, x in zip(self.others, inputs, strict=True) if other.size]
        parts += [x.expand(*parts[0].shape[:-1], -1) for x in flat]
        return self.stack(parts[0] if len(parts) == 1 else torch.cat(parts, -1))


@register("network", "impala")
class Impala(Cnn):
    """IMPALA's residual network (Espeholt et al. 2018, arXiv 1802.01561, figure 3), without its recurrent layer."""

    encoder = ResidualSections

    @config
    class Config(Layers):
        sections: list[Units]


@register("network", "auto")
def auto(cfg: Any, spaces: list[Space], members: int | None) -> nn.Module:
    """`cnn` with Nature DQN's convolutions where there are images, `mlp` for everything else."""
    linear = {"hidden": cfg.hidden, "activation": cfg.activation, "init": cfg.init, "norm": cfg.norm}
    cnn = Cnn.Config(**linear, convolutions=NATURE)
    images = any(Cnn.sees(cnn, leaf) for space in spaces for _, leaf in leaves(space))
    return Cnn(cnn, spaces, members) if images else Mlp(cfg, spaces, members)


auto.Config = Mlp.Config
