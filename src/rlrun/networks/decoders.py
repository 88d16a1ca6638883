"""Decoders of images: networks that draw an image from a latent state, as rows of the numbers that `FlattenInputs`
makes of images of the same space."""

import math
from collections.abc import Sequence

import torch
from gymnasium import Space
from torch import Tensor, nn
from torch.nn import functional as F

from rlrun.networks.inputs import FlattenInputs, channels_last
from rlrun.networks.linear import Linear
from rlrun.networks.torsos import Residual


class ImageDecoder(nn.Module):
    """Maps latent states [..., *latent] to images as rows [..., size]. Subclasses define `draw`.

    latent: space of the latent states. image: space of the images, as in `is_image`.
    """

    def __init__(self, latent: Space, image: Space):
        super().__init__()
        self.flatten_latent = FlattenInputs(latent)
        self.inputs = self.flatten_latent.size
        shape = image.shape
        assert shape is not None
        self.frames = 1
        self.channels_last = channels_last(image)
        if self.channels_last:
            *frames, self.height, self.width, channels = shape
            self.frames = math.prod(frames)
            self.channels = self.frames * channels
        else:
            self.channels, self.height, self.width = shape

    def draw(self, latent: Tensor) -> Tensor:
        """Returns images [batch, channels, height, width] of latent states [batch, inputs]."""
        raise NotImplementedError

    def forward(self, latent: Tensor) -> Tensor:
        rows = self.flatten_latent(latent)
        images = self.draw(rows.flatten(0, -2))
        if self.channels_last:
            images = images.unflatten(1, (self.frames, -1))  # [batch, frames, channels, height, width]
            images = images.movedim(2, -1)
        return images.flatten(1).unflatten(0, rows.shape[:-1])


class Deconvolution(ImageDecoder):
    """Transposed convolutions, which mirror the convolutions of `network=cnn` for the same image.

    convolutions: [channels, kernel size, stride] of each convolution of the mirrored network.
    """

    def __init__(self, latent: Space, image: Space, convolutions: Sequence[Sequence[int]]):
        super().__init__(latent, image)
        sides = [(self.height, self.width)]  # before the first convolution and after each
        for _, kernel, stride in convolutions:
            height, width = sides[-1]
            sides.append(((height - kernel) // stride + 1, (width - kernel) // stride + 1))
        channels = [self.channels, *(outputs for outputs, _, _ in convolutions)]
        self.smallest = (channels[-1], *sides[-1])
        self.linear = Linear(self.inputs, math.prod(self.smallest))
        self.layers = nn.ModuleList()
        for i, (_, kernel, stride) in reversed([*enumerate(convolutions)]):
            # pixels at the edge that the convolution does not reach
            missing = ((sides[i][0] - kernel) % stride, (sides[i][1] - kernel) % stride)
            layer = nn.ConvTranspose2d(channels[i + 1], channels[i], kernel, stride, output_padding=missing)
            self.layers.append(layer)

    def draw(self, latent: Tensor) -> Tensor:
        x = self.linear(latent).unflatten(1, self.smallest)
        for layer in self.layers:
            x = layer(F.relu(x))
        return x


class SpatialBroadcast(ImageDecoder):
    """Convolutions over the latent state and two coordinates at every pixel (Watters et al. 2019, arXiv 1901.07017).

    Coordinates are in [-1, 1]. channels: outputs of each 3 x 3 convolution; a 1 x 1 convolution follows.
    """

    coordinates: Tensor

    def __init__(self, latent: Space, image: Space, channels: Sequence[int]):
        super().__init__(latent, image)
        y = torch.linspace(-1, 1, self.height).view(-1, 1).expand(-1, self.width)
        x = torch.linspace(-1, 1, self.width).expand(self.height, -1)
        self.register_buffer("coordinates", torch.stack([y, x])[None], persistent=False)
        self.layers = nn.ModuleList()
        inputs = self.inputs + 2
        for outputs in channels:
            self.layers.append(nn.Conv2d(inputs, outputs, 3, padding=1))
            inputs = outputs
        self.output = nn.Conv2d(inputs, self.channels, 1)

    def draw(self, latent: Tensor) -> Tensor:
        batch = len(latent)
        everywhere = latent[:, :, None, None].expand(-1, -1, self.height, self.width)
        x = torch.cat([everywhere, self.coordinates.expand(batch, -1, -1, -1)], 1)
        for layer in self.layers:
            x = F.relu(layer(x))
        image: Tensor = self.output(x)
        return image


class ResidualDeconvolution(ImageDecoder):
    """Sections of nearest-neighbour upsampling, convolution and a residual block, which mirror `network=impala`.

    sections: channels of each section, from the smallest image to the largest; each doubles height and width. The
    last image is cropped.
    """

    def __init__(self, latent: Space, image: Space, sections: Sequence[int]):
        super().__init__(latent, image)
        factor = 2 ** len(sections)
        self.smallest = (sections[0], math.ceil(self.height / factor), math.ceil(self.width / factor))
        self.linear = Linear(self.inputs, math.prod(self.smallest))
        self.layers = nn.ModuleList()
        inputs = sections[0]
        for outputs in sections:
            self.layers.append(nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), Residual(outputs)))
            inputs = outputs
        self.output = nn.Conv2d(inputs, self.channels, 3, padding=1)

    def draw(self, latent: Tensor) -> Tensor:
        x = self.linear(latent).unflatten(1, self.smallest)
        for layer in self.layers:
            x = layer(F.interpolate(x, scale_factor=2, mode="nearest"))
        image: Tensor = self.output(F.relu(x))
        return image[:, :, : self.height, : self.width]
