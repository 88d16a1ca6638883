"""Estimates of mutual information by a network (Belghazi et al. 2018, arXiv 1801.04062)."""

import math
from typing import ClassVar, Literal

import torch
from gymnasium import Space
from torch import Tensor, nn
from torch.nn import functional as F

from rlrun.core.random import Stream
from rlrun.errors import ConfigError
from rlrun.functional.distributions import Normal
from rlrun.functional.information import (
    donsker_varadhan,
    donsker_varadhan_loss,
    exp_clipped,
    jensen_shannon_loss,
    kl_loss,
)
from rlrun.functional.losses import batch_mean
from rlrun.networks.heads import Head
from rlrun.settings import Size, Units, config, register, registry
from rlrun.types import Batch

KEY = "algo.representation.information"
RATE = 0.01  # of the moving average of exp(T)
BUFFERS = ("buffer", "double_buffer")


class LatestRows(nn.Module):
    """The latest rows, at most `size` of them."""

    rows: Tensor
    added: Tensor

    def __init__(self, size: int, width: int):
        super().__init__()
        self.register_buffer("rows", torch.zeros(size, width))
        self.register_buffer("added", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def add(self, rows: Tensor) -> None:
        """Adds rows [batch, width]; of more than `size`, the first ones."""
        rows = rows[: len(self.rows)]
        index = (self.added + torch.arange(len(rows), device=rows.device)) % len(self.rows)
        self.rows.index_copy_(0, index, rows)
        self.added.add_(len(rows))

    def sample(self, uniform: Tensor) -> Tensor:
        """Returns a stored row for each number in [0, 1), [batch, width]."""
        count = self.added.clamp(max=len(self.rows))
        return self.rows[(uniform * count).long()]


@register("information", "mutual_information")
class MutualInformation(nn.Module):
    """Estimates I(X; Y), or I(X; Y | Z), in nats.

    x, y: spaces of vectors. z: that of the condition, for I(X; Y | Z).

    bound: `dv`, `kld`, `jsd`: bounds with samples of P(x) P(y); `ml`: the mean of log q(y|x) - log p(y), where q is a
    normal distribution relative to the known p(y). product: where these samples come from: y of a ring of the latest
    rows (`buffer`), also x (`double_buffer`), the batch in random order (`shuffle`) or shifted by one row (`shift`), or
    the known distribution of y (`distribution`). Only `shuffle` and `shift` have gradients in y.

    With z, `known` is P(y|z); `dv` is not supported then, because its logarithm is outside of the mean over z.
    """

    registered: ClassVar[str] = "?"  # the name in configs, set by @register
    average: Tensor
    updates: Tensor

    @config
    class Config:
        bound: Literal["dv", "kld", "jsd", "ml"]
        product: Literal["buffer", "double_buffer", "shuffle", "shift", "distribution"]
        buffer_size: Size
        hidden: list[Units]

    def __init__(self, cfg: Config, x: Space, y: Space, z: Space | None = None):
        super().__init__()
        self.cfg = cfg
        self.needs_known = cfg.bound == "ml" or cfg.product == "distribution"
        if z is not None and cfg.bound == "dv":
            raise ConfigError(f"{KEY}.bound=dv: is no bound of a conditional mutual information; choose kld, jsd or ml")
        if z is not None and not self.needs_known:
            raise ConfigError(f"{KEY}.product={cfg.product}: has no samples of P(y|z); set product=distribution")
        inputs = [x] if z is None else [x, z]
        self.size = y.shape[0]  # type: ignore[index]
        outputs = 2 * self.size
        if cfg.bound != "ml":
            inputs.append(y)
            outputs = 1
        values = {
            "name": "mlp",
            "hidden": cfg.hidden,
            "activation": "relu",
            "init": "uniform",
            "norm": {"name": "none"},
        }
        self.network = Head(registry.build("network", values, inputs, None), outputs)
        self.register_buffer("average", torch.zeros(()))  # of exp(T), before the correction for its start at 0
        self.register_buffer("updates", torch.zeros(()))
        if cfg.bound != "ml" and cfg.product in BUFFERS:
            self.ys = LatestRows(cfg.buffer_size, self.size)
        if cfg.bound != "ml" and cfg.product == "double_buffer":
            self.xs = LatestRows(cfg.buffer_size, x.shape[0])  # type: ignore[index]

    def noise(self, rows: int, stream: Stream) -> Batch:
        """Returns the random numbers that one call of `loss` with so many rows takes."""
        if self.cfg.bound == "ml" or self.cfg.product == "shift":
            return {}
        if self.cfg.product == "shuffle":
            return {"order": stream.permutation(rows)}
        if self.cfg.product == "distribution":
            return {"sample": stream.normal(rows, self.size)}
        return {"x": stream.uniform(rows), "y": stream.uniform(rows)}

    def loss(
        self, x: Tensor, y: Tensor, noise: Batch, z: Tensor | None = None, known: Normal | None = None
    ) -> tuple[Tensor, Tensor]:
        """Returns the loss of each row [batch], and the estimate of the mutual information, detached, [].

        x, y, z [batch, size]. known: P(y) or P(y|z) of each row. Rings and the moving average include the rows
        afterwards.
        """
        if self.cfg.bound == "ml":
            information = self.pmi(x, y, z, known)
            return -information, batch_mean(information.detach())
        joint = self.value(x, y, z)
        product = self.value(*self.product(x, y, noise, known), z)
        match self.cfg.bound:
            case "dv":
                self.move_average(product.detach())
                losses = donsker_varadhan_loss(joint, product, self.corrected())
                estimate = donsker_varadhan(joint, product)
            case "kld":
                losses = kl_loss(joint, product)
                estimate = -batch_mean(losses)
            case "jsd":
                losses = jensen_shannon_loss(joint, product)
                estimate = batch_mean(joint)
        return losses, estimate.detach()

    def pmi(self, x: Tensor, y: Tensor, z: Tensor | None = None, known: Normal | None = None) -> Tensor:
        """Returns the estimated log P(x, y) - log P(x) P(y) of each row, [batch]."""
        if self.cfg.bound == "ml":
            assert known is not None
            given = (x,) if z is None else (x, z)
            change, scale = self.network(*given).chunk(2, -1)
            likely = Normal(known.mean + change, F.softplus(scale).log())
            return likely.log_prob(y) - known.log_prob(y)
        value = self.value(x, y, z)
        if self.cfg.bound == "dv":
            return value - self.corrected().log()
        return value

    def value(self, x: Tensor, y: Tensor, z: Tensor | None) -> Tensor:
        """Returns T of each row, [batch]."""
        given = (x, y) if z is None else (x, z, y)
        value: Tensor = self.network(*given)
        return value.squeeze(-1)

    def product(self, x: Tensor, y: Tensor, noise: Batch, known: Normal | None) -> tuple[Tensor, Tensor]:
        """Returns rows of P(x) P(y)."""
        match self.cfg.product:
            case "shuffle":
                return x, y[noise["order"]]
            case "shift":
                return x, y.roll(1, 0)
            case "distribution":
                assert known is not None
                return x, known.sample(noise["sample"]).detach()
        self.ys.add(y)
        if self.cfg.product == "double_buffer":
            self.xs.add(x)
            x = self.xs.sample(noise["x"])
        return x, self.ys.sample(noise["y"])

    @torch.no_grad()
    def move_average(self, product: Tensor) -> None:
        self.average.lerp_(batch_mean(exp_clipped(product)), RATE)
        self.updates.add_(1)

    def corrected(self) -> Tensor:
        """Returns the moving average of exp(T), without the bias of its start at 0; 1 before the first update."""
        share = -torch.expm1(self.updates * math.log1p(-RATE))  # 1 - (1 - RATE)^updates
        return torch.where(self.updates > 0, self.average / share.clamp(min=RATE), 1.0)
