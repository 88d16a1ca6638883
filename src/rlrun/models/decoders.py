"""The part `decoder`: predicts a field, such as the observation, from a latent state, with a loss of each row."""

from collections.abc import Callable, Iterator
from typing import Annotated, ClassVar, Literal

import torch
from gymnasium import Space, spaces
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from rlrun.core.state import RunningMoments
from rlrun.errors import ConfigError
from rlrun.functional.losses import masked_mean, normal_error
from rlrun.networks.decoders import Deconvolution, ResidualDeconvolution, SpatialBroadcast
from rlrun.networks.heads import Head
from rlrun.networks.inputs import FlattenInputs, is_image, leaves
from rlrun.networks.torsos import Activation, Cnn, Convolution, Convolutions
from rlrun.settings import NonNegativeFloat, Units, config, register, registry
from rlrun.types import Metrics, Obs

KEY = "algo.representation.model.decoder"
ELEMENTWISE: dict[str, Callable[..., Tensor]] = {
    "smooth_l1": F.smooth_l1_loss,
    "squared": F.mse_loss,
    "bce": F.binary_cross_entropy_with_logits,
}
CONSTANT = 1e-8  # a dimension of the target with a smaller variance is not normalised
MOST_DIMENSIONS = 100  # that `by_dimension` reports
Loss = Literal["smooth_l1", "squared", "bce", "normal", "categorical"]
Channels = Annotated[list[Units], Field(min_length=1)]


class Decoder(nn.Module):
    """Predicts one field from latent states. Subclasses build the network.

    latent: space of the latent states. target: space of the field. field: its name, with which metrics end.

    Losses are means over the dimensions of the target. `bce` and `categorical` read the network's outputs as logits;
    `normal` is the negative log-likelihood with one learned standard deviation per dimension.
    """

    registered: ClassVar[str] = "?"  # the name in configs, set by @register

    @config
    class Config:
        loss: Loss
        weight: NonNegativeFloat
        normalize_target: bool
        by_dimension: bool

    def __init__(self, cfg: Config, latent: Space, target: Space, field: str):
        super().__init__()
        self.cfg, self.field = cfg, field
        faults = [f"{KEY}{fault}" for fault in self.unsuited(target)]
        if faults:
            raise ConfigError(*faults)
        self.flatten = FlattenInputs(target)
        self.network = self.build(latent, target)
        if cfg.loss == "normal":
            self.log_std = nn.Parameter(torch.zeros(self.flatten.size))
        self.choices: list[int] = []
        if cfg.loss == "categorical":
            self.choices = [n for _, leaf in leaves(target) for n in one_hot_sizes(leaf)]
        if cfg.normalize_target:
            self.moments = RunningMoments((self.flatten.size,))

    def build(self, latent: Space, target: Space) -> nn.Module:
        """Returns the network from latent states to rows [..., size] of the flattened target."""
        raise NotImplementedError

    def unsuited(self, target: Space) -> Iterator[str]:
        """Yields why the settings do not fit the field."""
        cfg = self.cfg
        fields = [leaf for _, leaf in leaves(target)]
        if cfg.loss == "categorical" and not all(map(one_hot_sizes, fields)):
            yield f".loss=categorical: needs Discrete or MultiDiscrete observations, but these are {shown(target)}"
        if cfg.loss == "bce" and not all(map(is_fraction, fields)):
            yield f".loss=bce: needs observations from 0 to 1, images or choices, but these are {shown(target)}"
        if cfg.normalize_target and cfg.loss in ("bce", "categorical"):
            yield f".normalize_target=true: is for observations on any scale, and not supported with loss={cfg.loss}"
        size = FlattenInputs(target).size
        if cfg.by_dimension and size > MOST_DIMENSIONS:
            yield f".by_dimension=true: reports up to {MOST_DIMENSIONS} dimensions, but observations have {size}"

    def forward(self, latent: Tensor) -> Tensor:
        """Returns the network's outputs [..., size] for latent states [..., *latent]."""
        outputs: Tensor = self.network(latent)
        return outputs

    def predict(self, latent: Tensor) -> Tensor:
        """Returns the predicted target, flattened, [..., size]: probabilities in place of logits."""
        outputs = self(latent)
        if self.cfg.loss == "bce":
            return outputs.sigmoid()
        if self.choices:
            return torch.cat([logits.softmax(-1) for logits in outputs.split(self.choices, -1)], -1)
        return outputs

    def target(self, field: Obs) -> Tensor:
        """Returns values of the field [..., *space] as rows [..., size]."""
        rows: Tensor = self.flatten(field)
        return rows

    def errors(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Returns the loss of each dimension, [..., size]; for `categorical` of each choice, [..., choices]."""
        if self.cfg.normalize_target:
            scale = self.scale().to(target)
            outputs = outputs * scale
            target = target * scale
        if self.cfg.loss == "normal":
            return normal_error(outputs, target, self.log_std)
        if self.choices:
            chosen = target.split(self.choices, -1)
            logits = outputs.split(self.choices, -1)
            log_probs = [(c * x.log_softmax(-1)).sum(-1) for c, x in zip(chosen, logits, strict=True)]
            return -torch.stack(log_probs, -1)
        return ELEMENTWISE[self.cfg.loss](outputs, target, reduction="none")

    def scale(self) -> Tensor:
        """Returns 1 / std of each dimension of the targets so far; 1 for dimensions that were constant, [size]."""
        var = self.moments.var
        return torch.where(var > CONSTANT, var, 1.0).rsqrt()

    def loss(self, latent: Tensor, target: Tensor, mask: Tensor) -> tuple[Tensor, Metrics]:
        """Returns the weighted loss of each row [...], which is 0 where the mask [...] is 0, and metrics of the others.

        latent [..., *latent]. target [..., size]: as `target` returns it. With `normalize_target`, its running moments
        include these rows.
        """
        if self.cfg.normalize_target:
            self.moments.add_masked(target, mask)
        errors = self.errors(self(latent), target)
        error = errors.mean(-1)
        metrics = {f"loss/representation_{self.field}": masked_mean(error.detach(), mask)}
        if self.cfg.by_dimension:
            for i, of_dimension in enumerate(errors.detach().unbind(-1)):
                metrics[f"loss/representation_{self.field}_{i}"] = masked_mean(of_dimension, mask)
        return self.cfg.weight * error * mask, metrics


@register("decoder", "dense")
class Dense(Decoder):
    """Fully connected layers, for fields of every kind."""

    @config
    class Config(Decoder.Config):
        hidden: list[Units]
        activation: Activation

    cfg: Config

    def build(self, latent: Space, target: Space) -> nn.Module:
        layers = {"hidden": self.cfg.hidden, "activation": self.cfg.activation}
        network = {"name": "mlp", "init": "orthogonal", "norm": {"name": "none"}} | layers
        return Head(registry.build("network", network, [latent], None), self.flatten.size)


class OfImages(Decoder):
    """Base class of the decoders whose network draws an image, one of networks/decoders.py."""

    def unsuited(self, target: Space) -> Iterator[str]:
        if is_image(target):
            yield from super().unsuited(target)
        else:
            yield f"={self.registered}: needs images of bytes, but observations are {shown(target)}; use {KEY}=dense"


@register("decoder", "deconvolution")
class MirroredConvolutions(OfImages):
    """Transposed convolutions, which mirror those of `network=cnn`."""

    @config
    class Config(Decoder.Config):
        convolutions: Annotated[list[Convolution], Field(min_length=1)]

    cfg: Config

    def unsuited(self, target: Space) -> Iterator[str]:
        yield from super().unsuited(target)
        if is_image(target) and not Cnn.sees(self.cfg, target):
            smallest = Convolutions.smallest(self.cfg)
            yield f".convolutions={self.cfg.convolutions}: mirror those of images of {smallest} pixels a side or more"

    def build(self, latent: Space, target: Space) -> nn.Module:
        return Deconvolution(latent, target, self.cfg.convolutions)


@register("decoder", "broadcast")
class Broadcast(OfImages):
    """Convolutions over the latent state and two coordinates at every pixel."""

    @config
    class Config(Decoder.Config):
        channels: Channels

    cfg: Config

    def build(self, latent: Space, target: Space) -> nn.Module:
        return SpatialBroadcast(latent, target, self.cfg.channels)


@register("decoder", "residual")
class ResidualUpsampling(OfImages):
    """Sections of upsampling, convolution and a residual block, which mirror `network=impala`."""

    @config
    class Config(Decoder.Config):
        sections: Channels

    cfg: Config

    def build(self, latent: Space, target: Space) -> nn.Module:
        return ResidualDeconvolution(latent, target, self.cfg.sections)


def one_hot_sizes(space: Space) -> list[int]:
    """Returns the length of each one-hot vector that `FlattenInputs` makes of a space; [] for other spaces."""
    if isinstance(space, spaces.Discrete):
        return [int(space.n)]
    if isinstance(space, spaces.MultiDiscrete):
        return [int(n) for n in space.nvec.flat]
    return []


def is_fraction(space: Space) -> bool:
    """Returns whether all numbers that `FlattenInputs` makes of a space are from 0 to 1."""
    if not isinstance(space, spaces.Box):
        return True  # one-hot vectors and bits
    return space.dtype == "uint8" or bool((space.low >= 0).all() and (space.high <= 1).all())


def shown(space: Space) -> str:
    """Returns a space in one line."""
    return " ".join(f"{space}".split())
