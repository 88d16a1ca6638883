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

MAX_R = 3.0  # bounds of the corrections of batch renormalisation, from its section 4
MAX_D = 5.0
EPSILON = 1e-3  # added to variances by batch renormalisation, as in the code of CrossQ's authors


@register("norm", "none")
class NoNorm(nn.Module):
    """No normalisation, activations alone. widths: of the inputs of a stack, then of each of its linear layers."""

    registered: ClassVar[str] = "?"  # the name in configs, set by @register

    @config
    class Config:
        pass

    def __init__(self, cfg: Any, widths: list[int], members: int | None):
        super().__init__()

    def inputs(self, x: Tensor) -> Tensor:
        """Returns the input of the first linear layer."""
        return x

    def hidden(self, i: int, x: Tensor, activation: Callable[[Tensor], Tensor]) -> Tensor:
        """Returns the output of the linear layer number i after normalisation and activation."""
        return activation(x)


@register("norm", "layer")
class LayerNorm(NoNorm):
    """Layer normalisation (Ba et al. 2016, arXiv 1607.06450) of every linear output, before its activation."""

    def __init__(self, cfg: Any, widths: list[int], members: int | None):
        super().__init__(cfg, widths, members)
        hidden_widths = widths[1:]
        self.layers = nn.ModuleList(Standardised(width, members) for width in hidden_widths)

    def hidden(self, i: int, x: Tensor, activation: Callable[[Tensor], Tensor]) -> Tensor:
        normalised = self.layers[i](x)
        return activation(normalised)


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
        following = self.layers[i + 1]
        return following(activation(x))


class Standardised(nn.Module):
    """Normalises every row to mean 0 and variance 1 over its features, then scales and shifts it: [..., features]."""

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

    With members, each has statistics of its own over its rows [members, batch, features]. In training mode the batch's
    statistics are used, corrected towards the running ones once those have seen `warmup` batches, and the running ones
    are updated. It is off from the beginning; `batch_statistics` alone switches it on.
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
            normalised = (x - self.mean) * (self.var + EPSILON).rsqrt()
            return normalised * self.scale + self.bias
        mean, var = self.statistics(x)
        r, d = self.corrections(mean.detach(), var.detach())
        self.move(mean.detach(), var.detach())
        normalised = (x - mean) * (var + EPSILON).rsqrt()
        return (normalised * r + d) * self.scale + self.bias

    def statistics(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the mean and the variance of a batch, of each member where there are any."""
        if self.members is None:
            rows = tuple(range(x.dim() - 1))
            return moments(x, rows)
        return moments(x, (-2,), keepdim=True)

    def corrections(self, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
        """Returns r and d of a batch's statistics (algorithm 1); 1 and 0, plain batch normalisation, in the warm-up.

        r = clip(std / running_std, 1 / MAX_R, MAX_R),  d = clip((mean - running_mean) / running_std, -MAX_D, MAX_D)
        """
        running_std = (self.var + EPSILON).sqrt()
        std = (var + EPSILON).sqrt()
        r = (std / running_std).clamp(1 / MAX_R, MAX_R)
        d = ((mean - self.mean) / running_std).clamp(-MAX_D, MAX_D)
        is_warm = self.batches >= self.warmup
        return torch.where(is_warm, r, 1.0), torch.where(is_warm, d, 0.0)

    @torch.no_grad()
    def move(self, mean: Tensor, var: Tensor) -> None:
        """Updates the running statistics with those of a batch."""
        self.mean.lerp_(mean, 1 - self.momentum)
        self.var.lerp_(var, 1 - self.momentum)
        self.batches.add_(1)


@contextmanager
def batch_statistics(network: nn.Module) -> Iterator[None]:
    """Makes batch-normalised layers of the network use the statistics of their batch and update the running ones.

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
    """Returns the shape of one number per feature, for every member."""
    if members is None:
        return (features,)
    return members, 1, features
