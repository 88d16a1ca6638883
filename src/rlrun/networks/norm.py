"""Normalisation of the linear layers of a torso, alone or stacked for the members of an ensemble.

Each part holds all layers of one stack and says where they stand in it. `Stack` passes every input and every linear
output through it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlrun.config.schema import Fraction, NonNegativeInt, config
from rlrun.functional.losses import moments
from rlrun.registry import register

MAX_R, MAX_D = 3.0, 5.0  # bounds of the corrections of batch renormalisation, from its section 4
EPSILON = 1e-3  # added to variances by batch renormalisation, as CrossQ's authors have it


@register("norm", "none")
class NoNorm(nn.Module):
    """Activations alone. widths: of the inputs of a stack, then of each of its linear layers."""

    registered: ClassVar[str] = "?"  # the name in configs, set by @register

    @config
    class Config:
        pass

    def __init__(self, cfg: Any, widths: list[int], members: int | None):
        super().__init__()

    def inputs(self, x: Tensor) -> Tensor:
        """What the first linear layer reads."""
        return x

    def hidden(self, i: int, x: Tensor, activation: Callable[[Tensor], Tensor]) -> Tensor:
        """What follows the linear layer number i."""
        return activation(x)


@register("norm", "layer")
class LayerNorm(NoNorm):
    """Layer normalisation (Ba et al. 2016, arXiv 1607.06450) of every linear output, before its activation."""

    def __init__(self, cfg: Any, widths: list[int], members: int | None):
        super().__init__(cfg, widths, members)
        self.layers = nn.ModuleList(Standardised(width, members) for width in widths[1:])

    def hidden(self, i: int, x: Tensor, activation: Callable[[Tensor], Tensor]) -> Tensor:
        return activation(self.layers[i](x))


@register("norm", "batch_renorm")
class BatchRenorm(NoNorm):
    """Batch renormalisation (Ioffe 2017, arXiv 1702.03275) of the inputs and after every activation, as in CrossQ.

    The running statistics are used everywhere but inside `batch_statistics`.
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
        return self.layers[i + 1](activation(x))


class Standardised(nn.Module):
    """Every row to mean 0 and variance 1 over its features, then scaled and shifted: [..., features]."""

    def __init__(self, features: int, members: int | None):
        super().__init__()
        shape = stacked(features, members)
        self.scale = nn.Parameter(torch.ones(shape))
        self.bias = nn.Parameter(torch.zeros(shape))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:]) * self.scale + self.bias


class Renormalised(nn.Module):
    """Every feature to mean 0 and variance 1 over rows [..., features], then scaled and shifted.

    With members, each has statistics of its own over its rows [members, batch, features]. `training` says whether the
    batch's statistics are used, corrected towards the running ones once those have seen `warmup` batches, and move the
    running ones. It is off from the beginning; `batch_statistics` alone switches it on.
    """

    mean: Tensor
    var: Tensor
    batches: Tensor

    def __init__(self, features: int, members: int | None, momentum: float, warmup: int):
        super().__init__()
        shape = stacked(features, members)
        self.momentum, self.warmup, self.members = momentum, warmup, members
        self.scale = nn.Parameter(torch.ones(shape))
        self.bias = nn.Parameter(torch.zeros(shape))
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("var", torch.ones(shape))
        self.register_buffer("batches", torch.zeros(()))
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return (x - self.mean) * (self.var + EPSILON).rsqrt() * self.scale + self.bias
        rows = tuple(range(x.dim() - 1)) if self.members is None else (-2,)
        mean, var = moments(x, rows, keepdim=self.members is not None)
        r, d = self.corrections(mean.detach(), var.detach())
        self.move(mean.detach(), var.detach())
        return ((x - mean) * (var + EPSILON).rsqrt() * r + d) * self.scale + self.bias

    def corrections(self, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
        """r and d of a batch's statistics (algorithm 1); 1 and 0, plain batch normalisation, during the warm-up."""
        running_std = (self.var + EPSILON).sqrt()
        r = ((var + EPSILON).sqrt() / running_std).clamp(1 / MAX_R, MAX_R)
        d = ((mean - self.mean) / running_std).clamp(-MAX_D, MAX_D)
        warm = self.batches >= self.warmup
        return torch.where(warm, r, 1.0), torch.where(warm, d, 0.0)

    @torch.no_grad()
    def move(self, mean: Tensor, var: Tensor) -> None:
        """The running statistics follow those of a batch."""
        self.mean.lerp_(mean, 1 - self.momentum)
        self.var.lerp_(var, 1 - self.momentum)
        self.batches.add_(1)


@contextmanager
def batch_statistics(network: nn.Module) -> Iterator[None]:
    """Inside, batch-normalised layers of the network use the statistics of what they are given, and remember them.

    For the part of an update in which a network learns. Acting, evaluation and targets stay outside.
    """
    layers = [module for module in network.modules() if isinstance(module, Renormalised)]
    for layer in layers:
        layer.train()
    try:
        yield
    finally:
        for layer in layers:
            layer.eval()


def stacked(features: int, members: int | None) -> tuple[int, ...]:
    """The shape of one number per feature, of every member."""
    return (features,) if members is None else (members, 1, features)
