"""Torsos: networks that map observations (and actions) to features, which are the inputs of heads."""

import math
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar, Literal

import torch
from gymnasium import Space, spaces
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from rlrun.errors import ConfigError
from rlrun.nested import get
from rlrun.networks.inputs import FlattenInputs, channels_last, concatenated, is_image, largest_byte, leaves
from rlrun.networks.linear import Linear
from rlrun.settings import Part, Range, Units, config, register, registry
from rlrun.types import Obs

Activation = Literal["relu", "tanh", "elu", "gelu", "silu"]
Init = Literal["uniform", "orthogonal"]
Convolution = Annotated[list[Units], Field(min_length=3, max_length=3)]  # channels, kernel, stride
NATURE = [[32, 8, 4], [64, 4, 2], [64, 3, 1]]  # doi 10.1038/nature14236
SMALL_KERNELS = "network.convolutions=[[16,3,2],[32,3,1]]"  # for images of 16 pixels a side
ACTIVATIONS = {"relu": F.relu, "tanh": torch.tanh, "elu": F.elu, "gelu": F.gelu, "silu": F.silu}


@config
class Layers:
    """Settings of the linear layers of a torso."""

    hidden: list[Units]
    activation: Activation
    init: Init
    norm: Annotated[dict[str, object], Part("norm")]


@config
class ImageLayers(Layers):
    """Settings of torsos with convolutions of images."""

    pixel_range: Range = [0.0, 1.0]  # noqa: RUF012


class Stack(nn.Module):
    """Linear layers, each followed by an activation, with optional normalisation: [..., inputs] -> [..., features]."""

    def __init__(self, inputs: int, cfg: Any, members: int | None):
        super().__init__()
        gain = None
        if cfg.init == "orthogonal":
            gain = math.sqrt(2)
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
    """Concatenates all inputs to a flat vector; it has no weights. With a head, it is a linear policy or value."""

    @config
    class Config:
        pass

    def __init__(self, cfg: Any, spaces: list[Space], members: int | None):
        super().__init__()
        flattens = [FlattenInputs(space) for space in spaces]
        self.inputs = nn.ModuleList(flattens)
        self.features = sum(flatten.size for flatten in flattens)

    def forward(self, *inputs: Obs) -> Tensor:
        vectors = [flatten(x) for flatten, x in zip(self.inputs, inputs, strict=True)]
        return concatenated(vectors)


@register("network", "mlp")
class Mlp(nn.Module):
    """Fully connected layers over all inputs as a flat vector."""

    @config
    class Config(Layers):
        pass

    def __init__(self, cfg: Any, spaces: list[Space], members: int | None):
        super().__init__()
        self.flat = LinearTorso(cfg=None, spaces=spaces, members=None)
        self.stack = Stack(self.flat.features, cfg, members)
        self.features = self.stack.features

    def forward(self, *inputs: Obs) -> Tensor:
        return self.stack(self.flat(*inputs))


def init_orthogonal(layers: Iterable[nn.Module]) -> None:
    """Initialises the convolutions among these layers with orthogonal weights (the gain of a ReLU) and zero biases."""
    for layer in layers:
        if isinstance(layer, nn.Conv2d):
            nn.init.orthogonal_(layer.weight, math.sqrt(2))
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]


class Pixels(nn.Module):
    """Convolutional layers on images: bytes [batch, C, H, W] or [batch, H, W, C] -> [batch, features].

    Bytes from 0 to their upper bound are scaled to `pixel_range`. The frames of a stack [batch, frames, H, W, C] become
    channels of one image.
    """

    def __init__(self, space: Space, cfg: Any):
        super().__init__()
        shape: Any = space.shape
        self.channels_last = channels_last(space)
        self.low, high = cfg.pixel_range
        self.divisor = largest_byte(space) / (high - self.low)
        self.factor = 1 / largest_byte(space)
        self.is_unit = (self.low, high) == (0.0, 1.0)
        channels = shape[0]
        if self.channels_last:
            channels = math.prod(shape[:-3]) * shape[-1]
        self.layers = self.build(channels, cfg)
        if cfg.init == "orthogonal":
            init_orthogonal(self.modules())
        with torch.no_grad():
            image = torch.zeros(1, *shape, dtype=torch.uint8)
            self.features = self(image).shape[1]

    def build(self, channels: int, cfg: Any) -> nn.ModuleList:
        """Returns the convolutional layers for an image with `channels` channels."""
        raise NotImplementedError

    @staticmethod
    def smallest(cfg: Any) -> int:
        """Returns the minimum number of pixels per side that the layers need."""
        raise NotImplementedError

    def scaled(self, x: Tensor) -> Tensor:
        """Returns bytes as floats in `pixel_range`."""
        if self.is_unit:
            return x.float() * self.factor
        return x.float() / self.divisor + self.low

    def forward(self, x: Tensor) -> Tensor:
        is_channels_last = self.channels_last
        if x.dim() == 5:
            x = x.movedim(1, 3).flatten(3)  # [batch, H, W, frames * C]
        if not is_channels_last and torch.is_grad_enabled():
            # channels last makes the gradient of the first layer more than twice as fast on a CPU; unbind and stack
            # take half the time of contiguous(memory_format=torch.channels_last)
            x = torch.stack(x.unbind(1), -1)
            is_channels_last = True
        if is_channels_last:
            x = x.permute(0, 3, 1, 2)
        x = self.scaled(x)
        for layer in self.layers:
            x = F.relu(layer(x))
        return x.flatten(1)


class Convolutions(Pixels):
    """Convolutions without padding."""

    def build(self, channels: int, cfg: Any) -> nn.ModuleList:
        layers = nn.ModuleList()
        for outputs, kernel, stride in cfg.convolutions:
            layers.append(nn.Conv2d(channels, outputs, kernel, stride))
            channels = outputs
        return layers

    @staticmethod
    def smallest(cfg: Any) -> int:
        side = 1
        for _, kernel, stride in reversed(cfg.convolutions):
            side = (side - 1) * stride + kernel
        return side


class Residual(nn.Module):
    """A residual block: x plus the output of two convolutions applied to x."""

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
        sections = nn.ModuleList()
        for outputs in cfg.sections:
            convolution = nn.Conv2d(channels, outputs, 3, padding=1)
            pooling = nn.MaxPool2d(3, 2, padding=1)
            section = nn.Sequential(convolution, pooling, Residual(outputs), Residual(outputs))
            sections.append(section)
            channels = outputs
        return sections

    @staticmethod
    def smallest(cfg: Any) -> int:
        return 1  # all layers have padding


@register("network", "cnn")
class Cnn(nn.Module):
    """A separate convolutional encoder for every image, then linear layers over all features and the other inputs."""

    encoder: ClassVar[type[Pixels]] = Convolutions

    @config
    class Config(ImageLayers):
        convolutions: list[Convolution]

    def __init__(self, cfg: Any, spaces: list[Space], members: int | None):
        super().__init__()
        self.members = members
        self.image_paths: list[tuple[int, tuple[str, ...]]] = []  # of every image: index of its input, keys inside it
        self.convolutions = nn.ModuleList()  # for every image, one encoder per member
        image_features = 0
        for i, space in enumerate(spaces):
            for path, leaf in leaves(space):
                if not self.sees(cfg, leaf):
                    continue
                encoders = [self.encoder(leaf, cfg) for _ in range(members or 1)]
                self.image_paths.append((i, path))
                self.convolutions.append(nn.ModuleList(encoders))
                image_features += encoders[0].features
        if not self.image_paths:
            raise self._refusal(cfg, spaces)

        others = [FlattenInputs(space, skip=partial(self.sees, cfg)) for space in spaces]
        self.others = nn.ModuleList(others)
        self.other_sizes = [other.size for other in others]
        self.stack = Stack(image_features + sum(self.other_sizes), cfg, members)
        self.features = self.stack.features

    def _refusal(self, cfg: Config, spaces: list[Space]) -> ConfigError:
        name = type(self).__name__.lower()
        smallest = self.encoder.smallest(cfg)
        small = [leaf for _, leaf in leaves(spaces[0]) if is_image(leaf)]
        if small:
            return ConfigError(
                f"network.convolutions={cfg.convolutions}: need images of {smallest} a side or more; this environment "
                f"has {small[0]}; set smaller kernels, such as {SMALL_KERNELS}, or network=impala"
            )
        return ConfigError(
            f"network={name} needs images of bytes [channels, height, width], {max(16, smallest)} a side or more; "
            f"this environment has {spaces[0]}, which is not supported; network=mlp supports every space"
        )

    @classmethod
    def sees(cls, cfg: Any, space: Space) -> bool:
        """Returns whether a space is an image that is large enough for the encoder."""
        if not is_image(space):
            return False
        shape: Any = space.shape
        height_and_width = shape[-3:-1] if channels_last(space) else shape[-2:]
        return min(height_and_width) >= cls.encoder.smallest(cfg)

    def forward(self, *inputs: Obs) -> Tensor:
        vectors = []
        encoders: Any
        for (i, path), encoders in zip(self.image_paths, self.convolutions, strict=True):
            image = get(inputs[i], path)
            features = [encoder(image) for encoder in encoders]
            if self.members is None:
                vectors.append(features[0])
            else:
                vectors.append(torch.stack(features))
        leading = vectors[0].shape[:-1]
        for other, size, x in zip(self.others, self.other_sizes, inputs, strict=True):
            if size:
                vectors.append(other(x).expand(*leading, -1))
        return self.stack(concatenated(vectors))


@register("network", "impala")
class Impala(Cnn):
    """IMPALA's residual network (Espeholt et al. 2018, arXiv 1802.01561, figure 3), without its recurrent layer."""

    encoder = ResidualSections

    @config
    class Config(ImageLayers):
        sections: list[Units]


@register("network", "auto")
def auto(cfg: ImageLayers, spaces: list[Space], members: int | None) -> nn.Module:
    """Returns a `cnn` with Nature DQN's convolutions if any input is an image, else an `mlp`."""
    cnn = Cnn.Config(
        hidden=cfg.hidden,
        activation=cfg.activation,
        init=cfg.init,
        norm=cfg.norm,
        pixel_range=cfg.pixel_range,
        convolutions=NATURE,
    )
    for space in spaces:
        for _, leaf in leaves(space):
            if Cnn.sees(cnn, leaf):
                return Cnn(cnn, spaces, members)
    return Mlp(cfg, spaces, members)


auto.Config = ImageLayers  # type: ignore[attr-defined]


def has_images(module: nn.Module) -> bool:
    """Returns whether any network in a module receives images."""
    return any(isinstance(part, Cnn) for part in module.modules())


def overlooked(space: Space) -> Iterator[str]:
    """Yields a line for every entry of observations that may be an image, but that the `cnn` of `auto` does not see."""
    nature = SimpleNamespace(convolutions=NATURE)
    needed = (
        "images for a cnn are uint8 [channels, height, width], or [height, width, channels] with at most 4 channels, "
        f"of {Convolutions.smallest(nature)} pixels a side or more"
    )
    for _, leaf in leaves(space):
        if _may_be_image(leaf) and not Cnn.sees(nature, leaf):
            shape: Any = leaf.shape
            line = f"network=auto: observations of {leaf} are {math.prod(shape):,} numbers for an mlp; {needed}"
            if is_image(leaf):
                line += f"; smaller ones need smaller kernels, such as network=cnn {SMALL_KERNELS}, or network=impala"
            yield line


def _may_be_image(space: Space) -> bool:
    """Returns whether a Box has two sides of 16 or more, and a further dimension or bytes."""
    if not isinstance(space, spaces.Box) or len(space.shape) < 2:
        return False
    if len(space.shape) == 2 and space.dtype != "uint8":
        return False
    second_largest_side = sorted(space.shape)[-2]
    return second_largest_side >= 16
