"""The part `statistics` of normalisers and intrinsic rewards: the running mean and variance of rows.

A *batch* is what one call of `add` gets: the rows of one timestep of all environments, or of one sampled batch. Rows
count from the next `publish` on, so that an agent acts and learns with the same statistics.
"""

from typing import ClassVar

import torch
from torch import Tensor, nn

from rlrun.core.state import RunningMoments
from rlrun.errors import ConfigError
from rlrun.settings import PositiveFloat, PositiveFraction, PositiveInt, config, register, registry


@register("statistics", "all")
class Statistics(nn.Module):
    """All rows count equally: `pending` are the moments of those since the last `publish`, `live` those of the others.

    shape: that of a row. key: the config key of the part, for messages.
    """

    registered: ClassVar[str] = "?"  # the name in configs, set by @register

    @config
    class Config:
        pass

    def __init__(self, cfg: object, shape: tuple[int, ...], key: str):
        super().__init__()
        self.cfg = cfg
        self.live = RunningMoments(shape)
        self.pending = RunningMoments(shape)
        self.may_be_pending = True  # whether rows may have been added since `publish`

    def add(self, rows: Tensor) -> None:
        """Adds a batch of rows [n, *shape] to the pending moments; n may be 0."""
        self.pending.add(rows)
        self.may_be_pending = True

    def publish(self) -> None:
        """Makes all pending rows live."""
        if self.may_be_pending:
            self.take_pending()
            self.may_be_pending = False

    def take_pending(self) -> None:
        """Adds the pending rows to the live moments."""
        self.live.take(self.pending)

    def available(self) -> tuple[Tensor, Tensor]:
        """Returns mean and variance of the live rows, or of the pending ones before anything was published."""
        is_live = self.live.count > 0
        mean = torch.where(is_live, self.live.mean, self.pending.mean)
        return mean, torch.where(is_live, self.live.var, self.pending.var)


class Fading(Statistics):
    """Base of statistics in which earlier batches count less. `pending` are the moments of all rows, live ones too.

    A batch with mean m and variance v has the weight w in the moments mean and var:

        var  <-  (1 - w) var + w v + w (1 - w) (m - mean)^2
        mean <-  mean + w (m - mean)
    """

    @torch.no_grad()
    def add(self, rows: Tensor) -> None:
        if not len(rows):
            return
        rows = rows.to(torch.float64)
        moments = self.pending
        weight = self.count_batch(moments.count)
        change = rows.mean(0) - moments.mean
        var = rows.var(0, correction=0) + (1 - weight) * change.square()
        moments.var.mul_(1 - weight).add_(weight * var)
        moments.mean.add_(weight * change)
        self.may_be_pending = True

    def count_batch(self, count: Tensor) -> Tensor:
        """Counts a batch in `count`, 0-d, in place, and returns its weight. That of the first batch is 1."""
        raise NotImplementedError

    def take_pending(self) -> None:
        for name, value in self.pending.named_buffers():
            self.live.get_buffer(name).copy_(value)


@register("statistics", "adaptive")
class AdaptiveStatistics(Fading):
    """Batch t, from 0 on, has the weight speed / (t + speed), so that early ones fade. `count` is their number."""

    @config
    class Config:
        speed: PositiveFloat

    cfg: Config

    def count_batch(self, count: Tensor) -> Tensor:
        weight: Tensor = self.cfg.speed / (count + self.cfg.speed)
        count.add_(1)
        return weight


@register("statistics", "ema")
class MovingMoments(Fading):
    """An exponential moving average: with each batch, all earlier ones lose the share `rate` of their weight.

    `count` is the sum of the weights 1, 1 - rate, (1 - rate)^2, ... of the batches, newest first. Divided by it, the
    average has no bias towards its start.
    """

    @config
    class Config:
        rate: PositiveFraction

    cfg: Config

    def count_batch(self, count: Tensor) -> Tensor:
        count.mul_(1 - self.cfg.rate).add_(1)
        return 1 / count


@register("statistics", "window")
class Window(Statistics):
    """The newest `size` rows count equally. `pending.count` is the number of all rows so far."""

    @config
    class Config:
        size: PositiveInt

    cfg: Config
    rows: Tensor

    def __init__(self, cfg: Config, shape: tuple[int, ...], key: str):
        super().__init__(cfg, shape, key)
        if len(shape) > 1:
            raise ConfigError(
                f"{key}=window: keeps the newest {cfg.size} rows, which must be numbers or vectors and not images, but "
                f"have the shape {shape}; choose all, adaptive or ema"
            )
        self.register_buffer("rows", torch.zeros(cfg.size, *shape))

    def add(self, rows: Tensor) -> None:
        added = self.pending.count.long()
        self.pending.count.add_(len(rows))
        places = added + torch.arange(len(rows), device=rows.device)
        newest = slice(-self.cfg.size, None)
        self.rows[places[newest] % self.cfg.size] = rows[newest].to(self.rows.dtype)
        self.may_be_pending = True

    def take_pending(self) -> None:
        self._measure(self.live)

    def available(self) -> tuple[Tensor, Tensor]:
        if not self.live.count:
            self._measure(self.pending)
        return super().available()

    def _measure(self, moments: RunningMoments) -> None:
        """Sets moments to those of the window. Without rows, they stay as they are."""
        moments.count.copy_(self.pending.count)
        kept = self.rows[: int(moments.count)].to(torch.float64)
        if len(kept):
            moments.mean.copy_(kept.mean(0))
            moments.var.copy_(kept.var(0, correction=0))


@register("statistics", "none")
class NoStatistics(Statistics):
    """No statistics: the mean is 0 and the variance 1."""

    def add(self, rows: Tensor) -> None:
        """Ignores the rows."""

    def take_pending(self) -> None:
        """Leaves the moments as they are."""

    def available(self) -> tuple[Tensor, Tensor]:
        return torch.zeros_like(self.live.mean), torch.ones_like(self.live.var)


def statistics_of(values: dict[str, object], shape: tuple[int, ...], key: str) -> Statistics:
    """Returns the part that a section names, for rows of this shape. key: that of the section. Raises ConfigError."""
    part: Statistics = registry.build("statistics", values, shape, key, path=key)
    return part
