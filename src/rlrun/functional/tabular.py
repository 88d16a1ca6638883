"""Tables of values: updates towards targets, and dynamic programming."""

import torch
from torch import Tensor

MAX_SWEEPS = 100_000  # of value iteration without a horizon


def move(
    table: Tensor,
    cell: Tensor,
    target: Tensor,
    rate: Tensor,
    weight: Tensor,
) -> Tensor:
    """Moves table[cell] towards target, in place; returns the errors target - table[cell], [batch].

    table [cells], cell [batch] int64, target and weight (0 or 1) [batch], rate 0-d. A cell with n targets of mean y
    becomes (1 - rate)^n Q + (1 - (1 - rate)^n) y, the result of n single updates on average over their orders. A plain
    sum of n updates would overshoot where n * rate > 1.
    """
    error = (target - table[cell]) * weight
    visits_of_cell = torch.zeros_like(table).index_add_(0, cell, weight)
    n = visits_of_cell[cell].clamp(min=1)
    change = error * (1 - (1 - rate) ** n)
    table.index_add_(0, cell, change / n)
    return error


def move_along(
    table: Tensor,
    traces: Tensor,
    error: Tensor,
    rate: Tensor,
) -> None:
    """Adds rate * sum of error * trace to the table, in place; table [cells], traces [batch, cells], error [batch].

    Where several rows reach a cell, the sum shrinks as in `move`; with one row it does not.
    """
    largest_trace = traces.amax(0).clamp(min=torch.finfo(traces.dtype).tiny)
    n = traces.sum(0) / largest_trace
    n = n.clamp(min=1)
    change = error @ traces * (1 - (1 - rate) ** n)
    table.add_(change / n)


def random_argmax(values: Tensor, noise: Tensor) -> Tensor:
    """Returns a column with the largest value of every row, ties broken by noise in [0, 1); both [batch, columns]."""
    is_largest = values == values.amax(-1, keepdim=True)
    return torch.where(is_largest, noise, -1.0).argmax(-1)


def value_iteration(
    transition: Tensor,
    reward: Tensor,
    gamma: float = 1.0,
    horizon: int | None = None,
    tolerance: float = 1e-10,
) -> Tensor:
    """Returns optimal values V [states] (Bellman 1957): V <- max_a R(s, a) + gamma sum_s' P(s' | s, a) V(s'), from V=0.

    transition [states, actions, states], rows sum to 1 or, where the episode ends, to less; reward [states, actions].
    With a horizon, the best return of that many steps; without, repeated until no value changes by more than the
    tolerance, which takes gamma < 1 or episodes that can end. Raises ValueError where 100,000 sweeps are not enough.
    """
    value = torch.zeros_like(reward[:, 0])
    for _ in range(horizon or MAX_SWEEPS):
        previous = value
        action_value = reward + gamma * transition @ value
        value = action_value.amax(-1)
        if horizon is None and (value - previous).abs().max() <= tolerance:
            return value
    if horizon is None:
        raise ValueError("the values grow without bound; give gamma < 1 or a horizon")
    return value
