"""Optimisers over flat parameter buffers, target networks, running mean and variance."""

import copy
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from rlrun.functional import fused


class StartsFresh:
    """Marks a module whose state a run does not take over when it loads the weights of another run."""


class Optim(StartsFresh, nn.Module):
    """Adam (arXiv 1412.6980), or AdamW with weight_decay > 0, over one flat buffer.

    The parameters become views of the buffer, so one fused operation updates all of them. If a gradient norm is not
    finite, `fault` becomes 1, and neither this step nor any later one changes a weight. The trainer reads `fault` and
    stops the run.

    Every weight belongs to one optimiser, because a second one would move it to a buffer of its own, where steps of the
    first no longer reach it.

    learning_rate: a number, or a tensor that changes during the run (`algo.schedule`).
    within: an optimiser that shares its weights with this one. The parameters are neighbours in its buffer, in the same
        order, and both optimisers change them there, each with moments, steps and a learning rate of its own.
    """

    exp_avg: Tensor
    exp_avg_sq: Tensor
    steps: Tensor
    learning_rate: Tensor
    fault: Tensor

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        learning_rate: float | Tensor,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        max_grad_norm: float | None = None,
        within: "Optim | None" = None,
    ):
        super().__init__()
        self.params = tuple(params)
        self.within = () if within is None else (within,)  # in a tuple, so that it is no submodule
        self.betas, self.eps, self.weight_decay, self.max_grad_norm = betas, eps, weight_decay, max_grad_norm
        if within is None:
            self.flat = torch.cat([param.detach().reshape(-1) for param in self.params])
            parts = self.flat.split([param.numel() for param in self.params])
            for param, part in zip(self.params, parts, strict=True):
                param.data = part.view_as(param)
        else:
            self.flat = within.part(self.params)
        self.register_buffer("exp_avg", torch.zeros_like(self.flat))
        self.register_buffer("exp_avg_sq", torch.zeros_like(self.flat))
        self.register_buffer("steps", self.flat.new_zeros(()))
        rate = torch.as_tensor(learning_rate, dtype=self.flat.dtype, device=self.flat.device)
        self.register_buffer("learning_rate", rate)  # a tensor stays the same object, so that it can be scheduled
        self.register_buffer("fault", self.flat.new_zeros(()))

    def part(self, params: Sequence[nn.Parameter]) -> Tensor:
        """Returns the part of the buffer that holds these parameters. Raises ValueError if they are no neighbours."""
        known = [id(param) for param in self.params]
        first = known.index(id(params[0])) if id(params[0]) in known else 0
        if known[first : first + len(params)] != [id(param) for param in params]:
            raise ValueError(
                "the parameters of an optimiser must be neighbours, in the same order, in the one around it"
            )
        start = sum(param.numel() for param in self.params[:first])
        return self.flat[start : start + sum(param.numel() for param in params)]

    def grads(self, loss: Tensor, create_graph: bool = False) -> Tensor:
        """Returns d loss / d params, flat [P]. Other parameters that the loss depends on get no gradients."""
        grads = torch.autograd.grad(loss, self.params, create_graph=create_graph)
        return torch.cat([grad.reshape(-1) for grad in grads])

    @torch.no_grad()
    def apply(self, grads: Tensor) -> Tensor:  # type: ignore[override]  # nn.Module.apply walks modules; not needed here
        """Takes one optimiser step with flat gradients [P]. Returns their norm before clipping."""
        norm: Tensor = torch.linalg.vector_norm(grads)
        scale = None
        if self.max_grad_norm is not None:
            scale = ((norm + 1e-6) / self.max_grad_norm).clamp(min=1.0)
        self.fault.logical_or_(norm - norm)  # the difference is 0 if the norm is finite, else NaN
        self.steps.add_(1 - self.fault)
        self.move(grads, scale)
        return norm

    def move(self, grads: Tensor, scale: Tensor | None) -> None:
        """Updates the parameters with gradients / scale, unless `fault` is set. scale: None for 1."""
        adam = fused.adamw_ if self.weight_decay else fused.adam_
        adam(
            [self.flat], [grads], [self.exp_avg], [self.exp_avg_sq], [], [self.steps],
            lr=self.learning_rate, beta1=self.betas[0], beta2=self.betas[1], weight_decay=self.weight_decay,
            eps=self.eps, amsgrad=False, maximize=False, grad_scale=scale, found_inf=self.fault,
        )  # fmt: skip

    def step(self, loss: Tensor) -> Tensor:
        """Takes one optimiser step that minimises the loss. Returns the gradient norm before clipping."""
        return self.apply(self.grads(loss))


def step_together(optims: Sequence[Optim], loss: Tensor) -> None:
    """Takes one step of several optimisers that minimise one loss, which is differentiated once."""
    grads = torch.autograd.grad(loss, [param for optim in optims for param in optim.params])
    flat = torch.cat([grad.reshape(-1) for grad in grads])
    for optim, part in zip(optims, flat.split([optim.flat.numel() for optim in optims]), strict=True):
        optim.apply(part)


class RMSprop(Optim):
    """RMSprop without momentum (Tieleman and Hinton 2012): the running mean of squared gradients scales the step."""

    DECAY = 0.99

    def move(self, grads: Tensor, scale: Tensor | None) -> None:
        if scale is not None:
            grads = grads / scale
        square = self.exp_avg_sq.lerp(grads.square(), 1 - self.DECAY)
        moved = self.flat - self.learning_rate * grads / (square.sqrt() + self.eps)
        for old, new in ((self.exp_avg_sq, square), (self.flat, moved)):
            old.copy_(torch.where(self.fault == 0, new, old))


OPTIMIZERS: dict[str, type[Optim]] = {"adam": Optim, "rmsprop": RMSprop}


@torch.no_grad()
def set_parameters(module: nn.Module, vector: Tensor) -> None:
    """Sets all parameters of a module from one vector [P], in the order of torch's `parameters_to_vector`.

    Copies in place, so parameters stay views of their optimiser's buffer; `vector_to_parameters` would cut them off.
    Raises ValueError if the vector has another length.
    """
    params = list(module.parameters())
    sizes = [param.numel() for param in params]
    if vector.shape != (sum(sizes),):
        raise ValueError(f"a vector of {sum(sizes)} numbers is needed, not one of shape {list(vector.shape)}")
    for param, part in zip(params, vector.split(sizes), strict=True):
        param.copy_(part.view_as(param))


class Target(nn.Module):
    """Target network: a copy of the network `source`, called with the same arguments.

    `track` moves its weights towards those of the source.
    """

    def __init__(self, source: nn.Module, tau: float):
        super().__init__()
        self.tau = tau
        self.periods = 0
        self.module: Any = copy.deepcopy(source).requires_grad_(False)
        self.fast: list[Tensor] = list(source.parameters())
        self.slow: list[Tensor] = list(self.module.parameters())

    def forward(self, *inputs: Tensor) -> Tensor:
        output: Tensor = self.module(*inputs)
        return output

    def select(self, members: Tensor | None) -> Callable[..., Tensor]:
        """Returns a callable that evaluates only these members of the copied ensemble (None: all), [selected, ...]."""
        return partial(self.module.select, members)

    @torch.no_grad()
    def track(self) -> None:
        """Sets the weights to (1 - tau) target + tau source, in place."""
        fused.lerp_all_(self.slow, self.fast, self.tau)

    def track_every(self, period: int, count: int) -> None:
        """Calls `track` if count // period has changed since the last call. count: steps or updates so far."""
        if count // period != self.periods:
            self.periods = count // period
            self.track()

    def get_extra_state(self) -> int:
        return self.periods

    def set_extra_state(self, state: int) -> None:
        self.periods = state


class RunningMoments(nn.Module):
    """Running mean and variance of rows (Chan's parallel update), in float64 for precision over long runs."""

    mean: Tensor
    var: Tensor
    count: Tensor

    def __init__(self, shape: tuple[int, ...]):
        super().__init__()
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("var", torch.ones(shape, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    def add(self, rows: Tensor) -> None:
        """Adds rows [n, *shape]; n may be 0."""
        if not len(rows):
            return
        rows = rows.to(torch.float64)
        self._merge(rows.new_tensor(rows.shape[0]), rows.mean(0), rows.var(0, correction=0))

    @torch.no_grad()
    def take(self, other: "RunningMoments") -> None:
        """Adds all rows of another instance to this one, and empties the other, which may be empty already."""
        self._merge_any(other.count, other.mean, other.var)
        other.count.zero_()
        other.mean.zero_()
        other.var.fill_(1.0)

    @torch.no_grad()
    def add_masked(self, rows: Tensor, mask: Tensor) -> None:
        """Adds the rows [..., *shape] whose mask [...] is 1; the others are 0. For kernels, whose shapes are fixed."""
        dims = tuple(range(mask.dim()))
        rows = rows.to(torch.float64)
        included = mask.to(torch.float64).view(*mask.shape, *[1] * self.mean.dim())
        count = included.sum()
        divisor = count.clamp(min=1.0)
        mean = (rows * included).sum(dims) / divisor
        var = ((rows - mean).square() * included).sum(dims) / divisor
        self._merge_any(count, mean, var)

    @torch.no_grad()
    def _merge_any(self, count: Tensor, mean: Tensor, var: Tensor) -> None:
        """Merges the moments of `count` rows, which may be 0."""
        old_mean, old_var = self.mean.clone(), self.var.clone()
        self._merge(count, mean, var)
        has_rows = count > 0  # a tensor: as a condition of `if`, it would wait for the device
        self.mean.copy_(torch.where(has_rows, self.mean, old_mean))
        self.var.copy_(torch.where(has_rows, self.var, old_var))

    @torch.no_grad()
    def _merge(self, count: Tensor, mean: Tensor, var: Tensor) -> None:
        total, delta = self.count + count, mean - self.mean
        self.var.mul_(self.count).add_(var * count).add_((delta * delta).mul_(self.count * count / total))
        self.mean.add_(delta.mul_(count / total))
        self.var.div_(total)
        self.count.copy_(total)
