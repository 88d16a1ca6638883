"""State that learns or follows: optimisers over flat memory, target networks, running statistics."""

import copy
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from rlrun.core.schedule import Rewindable, Schedule, StartsFresh
from rlrun.functional import fused


class Optim(StartsFresh, nn.Module):
    """Adam (arXiv 1412.6980), or AdamW with weight_decay > 0, over one flat buffer.

    The parameters become views of it, so one fused kernel updates them all, whatever their number. A gradient that is
    not finite changes nothing, then or later: `fault` stays 1 until the trainer reads it and stops the run.
    `schedule`: how the learning rate moves at every `tick`, as in core/schedule.py; empty: it stays.
    """

    exp_avg: Tensor
    exp_avg_sq: Tensor
    steps: Tensor
    learning_rate: Tensor
    fault: Tensor

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        learning_rate: float,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        max_grad_norm: float | None = None,
        schedule: dict[str, Any] | None = None,
    ):
        super().__init__()
        self.params = list(params)
        self.betas, self.eps, self.weight_decay, self.max_grad_norm = betas, eps, weight_decay, max_grad_norm
        self.flat = torch.cat([param.detach().reshape(-1) for param in self.params])
        parts = self.flat.split([param.numel() for param in self.params])
        for param, part in zip(self.params, parts, strict=True):
            param.data = part.view_as(param)
        self.register_buffer("exp_avg", torch.zeros_like(self.flat))
        self.register_buffer("exp_avg_sq", torch.zeros_like(self.flat))
        self.register_buffer("steps", self.flat.new_zeros(()))
        self.register_buffer("learning_rate", self.flat.new_tensor(learning_rate))
        self.register_buffer("fault", self.flat.new_zeros(()))
        self.schedule = Schedule(learning_rate, schedule) if schedule else None

    def tick(self, progress: float) -> None:
        """An update begins, or an epoch of one: the learning rate follows its schedule. Progress of the run: 0 to 1."""
        if self.schedule is not None:
            self.learning_rate.fill_(self.schedule(progress))

    def grads(self, loss: Tensor, create_graph: bool = False) -> Tensor:
        """d loss / d params, flat [P]. Only these parameters get gradients, wherever else the loss reaches."""
        grads = torch.autograd.grad(loss, self.params, create_graph=create_graph)
        return torch.cat([grad.reshape(-1) for grad in grads])

    @torch.no_grad()
    def apply(self, grads: Tensor) -> Tensor:  # type: ignore[override]  # nn.Module.apply walks modules; not needed here
        """One step along flat gradients [P]. Returns their norm before clipping."""
        norm = torch.linalg.vector_norm(grads)
        clipped = None if self.max_grad_norm is None else ((norm + 1e-6) / self.max_grad_norm).clamp(min=1.0)
        self.fault.logical_or_(norm - norm)  # 0 where it is finite, else NaN
        self.steps.add_(1 - self.fault)
        self.move(grads, clipped)
        return norm

    def move(self, grads: Tensor, scale: Tensor | None) -> None:
        """Change the parameters along gradients over `scale`, unless there is a fault."""
        adam = fused.adamw_ if self.weight_decay else fused.adam_
        adam(
            [self.flat], [grads], [self.exp_avg], [self.exp_avg_sq], [], [self.steps],
            lr=self.learning_rate, beta1=self.betas[0], beta2=self.betas[1], weight_decay=self.weight_decay,
            eps=self.eps, amsgrad=False, maximize=False, grad_scale=scale, found_inf=self.fault,
        )  # fmt: skip

    def step(self, loss: Tensor) -> Tensor:
        """One step down the loss. Returns the norm of the gradients."""
        return self.apply(self.grads(loss))


class RMSprop(Optim):
    """Steps over the root of the running mean of squared gradients (Tieleman and Hinton 2012), without momentum."""

    DECAY = 0.99

    def move(self, grads: Tensor, scale: Tensor | None) -> None:
        grads = grads if scale is None else grads / scale
        square = self.exp_avg_sq.lerp(grads.square(), 1 - self.DECAY)
        moved = self.flat - self.learning_rate * grads / (square.sqrt() + self.eps)
        for old, new in ((self.exp_avg_sq, square), (self.flat, moved)):
            old.copy_(torch.where(self.fault == 0, new, old))


OPTIMIZERS: dict[str, type[Optim]] = {"adam": Optim, "rmsprop": RMSprop}


class Target(Rewindable, nn.Module):
    """A slow copy of a network: each `track` moves it by `tau` towards its source, in place."""

    def __init__(self, source: nn.Module, tau: float):
        super().__init__()
        self.tau = tau
        self.periods = 0
        self.module: Any = copy.deepcopy(source).requires_grad_(False)
        self.fast: list[Tensor] = list(source.parameters())
        self.slow: list[Tensor] = list(self.module.parameters())

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.module(*inputs)

    def select(self, members: Tensor | None) -> Callable[..., Tensor]:
        """Some members of a copied ensemble, called like the whole: -> [selected, ...]; None: all of them."""
        return partial(self.module.select, members)

    @torch.no_grad()
    def track(self) -> None:
        fused.lerp_all_(self.slow, self.fast, self.tau)

    def track_every(self, period: int, count: int) -> None:
        """Track once for every call with which the count, of steps or of updates, has entered another period."""
        if count // period != self.periods:
            self.periods = count // period
            self.track()

    def rewind(self) -> None:
        """The count starts over."""
        self.periods = 0

    def get_extra_state(self) -> int:
        return self.periods

    def set_extra_state(self, state: int) -> None:
        self.periods = state


class RunningMoments(nn.Module):
    """Mean and variance of all rows seen (Chan's parallel update), in float64 so that a long run stays exact."""

    mean: Tensor
    var: Tensor
    count: Tensor

    def __init__(self, shape: tuple[int, ...]):
        super().__init__()
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("var", torch.ones(shape, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    def add(self, rows: Tensor) -> None:
        """rows: [n, *shape]; n may be 0."""
        if not len(rows):
            return
        rows = rows.to(torch.float64)
        self._merge(rows.new_tensor(rows.shape[0]), rows.mean(0), rows.var(0, correction=0))

    def take(self, other: "RunningMoments") -> None:
        """Add all that another has seen, and empty it."""
        if other.count:
            self._merge(other.count, other.mean, other.var)
            other.count.zero_()
            other.mean.zero_()
            other.var.fill_(1.0)

    @torch.no_grad()
    def _merge(self, count: Tensor, mean: Tensor, var: Tensor) -> None:
        total, delta = self.count + count, mean - self.mean
        squares = self.var * self.count + var * count + delta**2 * (self.count * count / total)
        self.mean.add_(delta * (count / total))
        self.var.copy_(squares / total)
        self.count.copy_(total)


class Statistics(nn.Module):
    """Running moments in two phases: collecting adds rows to `pending`, and `publish` in an update makes them live."""

    def __init__(self, shape: tuple[int, ...]):
        super().__init__()
        self.live = RunningMoments(shape)
        self.pending = RunningMoments(shape)

    def add(self, rows: Tensor) -> None:
        """Adds rows [n, *shape] to the pending moments."""
        self.pending.add(rows)

    def publish(self) -> None:
        """Makes all pending rows live."""
        self.live.take(self.pending)

    def available(self) -> RunningMoments:
        """Returns the live moments, or the pending ones before anything was published."""
        if self.live.count:
            return self.live
        return self.pending
