"""Normalisation of the linear layers of a torso, for a single network or for the stacked members of an ensemble.

The part `network.norm`, `NoNorm` or a subclass, normalises a whole `Stack` (networks/torsos.py). The stack passes its
input through `inputs`, and the output of every linear layer through `hidden`, which also applies the activation.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlrun.settings import Fraction, NonNegativeInt, config, register

MAX_R = 3.0  # bounds of batch renormalisation's corrections r and d (arXiv 1702.03275, section 4)
MAX_D = 5.0
EPSILON = 1e-3  # added to variances by batch renormalisation, as in the code of CrossQ's authors


@register("norm", "none")
class NoNorm(nn.Module):
    """Applies activations without normalisation.

    widths: number of inputs of the stack, then the outputs of each linear layer.
    """

    registered: ClassVar[str] = "?"  # the name in configs, set by @register

    @config
    class Config:
        pass

    def __init__(self, cfg: Config, widths: list[int], members: int | None):
        super().__init__()

    def inputs(self, x: Tensor) -> Tensor:
        """Returns the input of the first linear layer. Subclasses may normalise it."""
        return x

    def hidden(self, i: int, x: Tensor, activation: Callable[[Tensor], Tensor]) -> Tensor:
        """Returns x, the output of linear layer i (from 0), after normalisation and activation."""
        return activation(x)


@register("norm", "layer")
class LayerNorm(NoNorm):
    """Layer normalisation (Ba et al. 2016, arXiv 1607.06450) of every linear output, before its activation."""

    def __init__(self, cfg: NoNorm.Config, widths: list[int], members: int | None):
        super().__init__(cfg, widths, members)
        hidden_widths = widths[1:]
        self.layers = nn.ModuleList(Standardised(width, members) for width in hidden_widths)

    def hidden(self, i: int, x: Tensor, activation: Callable[[Tensor], Tensor]) -> Tensor:
        normalised = self.layers[i](x)
        return activation(normalised)


@register("norm", "batch_renorm")
class BatchRenorm(NoNorm):
    """Batch renormalisation (Ioffe 2017, arXiv 1702.03275) of the inputs and after every activation, as in CrossQ.

    Networks use the running statistics, except inside `batch_statistics`.
    """

    @config
    class Config:
        momentum: Fraction
        warmup: NonNegativeInt

    def __init__(self, cfg: Any, widths: list[int], members: int | None):
        super().__init__(cfg, widths, members)
        self.layers = nn.ModuleList(Renormalised(width, members, cfg.momentum, cfg.warmup) for width in widths)

    def inputs(self, x: Tensor) -> Tensor:
        return self.layers[0](x)

    def hidden(self, i: int, x: Tensor, activation: Callable[[Tensor], Tensor]) -> Tensor:
        norm = self.layers[i + 1]  # layer 0 is that of the inputs
        return norm(activation(x))


class Standardised(nn.Module):
    """Normalises every row [..., features] to mean 0 and variance 1 over its features, then scales and shifts it."""

    def __init__(self, features: int, members: int | None):
        super().__init__()
        shape = stacked(features, members)
        self.scale = nn.Parameter(torch.ones(shape))
        self.bias = nn.Parameter(torch.zeros(shape))

    def forward(self, x: Tensor) -> Tensor:
        normalised = F.layer_norm(x, x.shape[-1:])
        return normalised * self.scale + self.bias


class Renormalised(nn.Module):
    """Normalises every feature to mean 0 and variance 1 over rows [..., features], then scales and shifts it.

    With members, every member has its own statistics over its rows [members, batch, features]. Training mode normalises
    with the statistics of the batch, corrected towards the running statistics after the first `warmup` batches, and
    updates the running statistics. Only `batch_statistics` switches training mode on.
    """

    mean: Tensor
    var: Tensor
    batches: Tensor

    def __init__(self, features: int, members: int | None, momentum: float, warmup: int):
        super().__init__()
        shape = stacked(features, members)
        self.momentum = momentum
        self.warmup = warmup
        self.members = members
        self.scale = nn.Parameter(torch.ones(shape))
        self.bias = nn.Parameter(torch.zeros(shape))
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("var", torch.ones(shape))
        self.register_buffer("batches", torch.zeros(()))
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            normalised = (x - self.mean) * (self.var + EPSILON).rsqrt()
            return normalised * self.scale + self.bias
        mean, var = self.statistics(x)
        r, d = self.corrections(mean.detach(), var.detach())
        self.move(mean.detach(), var.detach())
        normalised = (x - mean) * (var + EPSILON).rsqrt()
        return (normalised * r + d) * self.scale + self.bias

    def statistics(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the mean and the variance of a batch per feature; with members, [members, 1, features]."""
        if self.members is None:
            all_but_features = tuple(range(x.dim() - 1))
            return moments(x, all_but_features)
        return moments(x, (-2,), keepdim=True)

    def corrections(self, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the corrections r and d for the statistics of a batch (algorithm 1).

        r = clip(std / running_std, 1 / MAX_R, MAX_R),  d = clip((mean - running_mean) / running_std, -MAX_D, MAX_D)

        During the first `warmup` batches r is 1 and d is 0, which is plain batch normalisation.
        """
        running_std = (self.var + EPSILON).sqrt()
        std = (var + EPSILON).sqrt()
        r = (std / running_std).clamp(1 / MAX_R, MAX_R)
        d = ((mean - self.mean) / running_std).clamp(-MAX_D, MAX_D)
        is_warm = self.batches >= self.warmup
        return torch.where(is_warm, r, 1.0), torch.where(is_warm, d, 0.0)

    @torch.no_grad()
    def move(self, mean: Tensor, var: Tensor) -> None:
        """Updates the running statistics with the mean and the variance of a batch."""
        self.mean.lerp_(mean, 1 - self.momentum)
        self.var.lerp_(var, 1 - self.momentum)
        self.batches.add_(1)


@contextmanager
def batch_statistics(network: nn.Module) -> Iterator[None]:
    """Context in which batch-normalised layers of the network use batch statistics and update the running statistics.

    Encloses the forward pass that a network learns from; acting, evaluation and targets use the running statistics.
    """
    layers = [module for module in network.modules() if isinstance(module, Renormalised)]
    for layer in layers:
        layer.train()
    try:
        yield
    finally:
        for layer in layers:
            layer.eval()


def moments(x: Tensor, dims: tuple[int, ...], keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Returns the mean and the (biased) variance of x over the dimensions `dims`."""
    mean = x.mean(dims, keepdim=keepdim)
    variance = x.var(dims, correction=0, keepdim=keepdim)
    return mean, variance


def stacked(features: int, members: int | None) -> tuple[int, ...]:
    """Returns the shape of a parameter with one value per feature: [features], or [members, 1, features]."""
    if members is None:
        return (features,)
    return members, 1, features
