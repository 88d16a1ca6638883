"""Tables of values: moving them towards targets, and the values that dynamic programming finds."""

import torch
from torch import Tensor


def move(table: Tensor, cell: Tensor, target: Tensor, rate: Tensor, weight: Tensor) -> Tensor:
    """Move table[cell] towards target, in place; returns the errors target - table[cell], [batch].

    table [cells], cell [batch] int64, target and weight (0 or 1) [batch], rate 0-d. A cell with n targets of mean y
    becomes (1 - rate)^n Q + (1 - (1 - rate)^n) y: what n moves, one after the other, come to on average over their
    orders. A plain sum of n moves would overshoot where n * rate > 1.
    """
    error = (target - table[cell]) * weight
    visits = torch.zeros_like(table).index_add_(0, cell, weight)[cell].clamp(min=1)
    table.index_add_(0, cell, error * (1 - (1 - rate) ** visits) / visits)
    return error


def move_along(table: Tensor, traces: Tensor, error: Tensor, rate: Tensor) -> None:
    """table += rate * sum of error * trace, in place; table [cells], traces [batch, cells], error [batch].

    Where several rows reach a cell, the sum shrinks as in `move`; with one row it does not.
    """
    visits = traces.sum(0) / traces.amax(0).clamp(min=torch.finfo(traces.dtype).tiny)
    visits = visits.clamp(min=1)
    table.add_(error @ traces * (1 - (1 - rate) ** visits) / visits)


def random_argmax(values: Tensor, noise: Tensor) -> Tensor:
    """A largest column of every row, ties broken by noise in [0, 1); both [batch, columns]."""
    return torch.where(values == values.amax(-1, keepdim=True), noise, -1.0).argmax(-1)


def value_iteration(
    transition: Tensor, reward: Tensor, gamma: float = 1.0, horizon: int | None = None, tolerance: float = 1e-10
) -> Tensor:
    """Optimal values V [states] (Bellman 1957): V <- max_a R(s, a) + gamma sum_s' P(s' | s, a) V(s'), from V = 0.

    transition [states, actions, states], rows sum to 1 or, where the episode ends, to less; reward [states, actions].
    With a horizon, the best return of that many steps; without, repeated until no value moves by more than the
    tolerance, which takes gamma < 1 or episodes that can end. Raises ValueError where 100,000 sweeps are not enough.
    """
    value = torch.zeros_like(reward[:, 0])
    for _ in range(horizon or 100_000):
        before, value = value, (reward + gamma * transition @ value).amax(-1)
        if horizon is None and (value - before).abs().max() <= tolerance:
            return value
    if horizon is None:
        raise ValueError("the values grow without bound; give gamma < 1 or a horizon")
    return value
