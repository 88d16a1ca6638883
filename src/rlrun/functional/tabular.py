"""Operations on tables of values: updates towards targets, and value iteration."""

import torch
from torch import Tensor

MAX_SWEEPS = 100_000  # maximum number of sweeps of value iteration without a horizon


def move(
    table: Tensor,
    cell: Tensor,
    target: Tensor,
    rate: Tensor,
    weight: Tensor,
) -> Tensor:
    """Moves table[cell] towards target in place, and returns the errors weight * (target - table[cell]), [batch].

    table [cells], cell [batch] int64, target and weight (0 or 1) [batch], rate 0-d. A cell Q with n targets of mean y
    becomes (1 - rate)^n Q + (1 - (1 - rate)^n) y, the mean result of n updates one after the other in random order.
    The plain sum of n updates would overshoot if n * rate > 1.
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
    """Adds rate * sum_batch(error * trace) to the table in place; table [cells], traces [batch, cells], error [batch].

    If n rows have a trace at one cell, the sum is scaled by (1 - (1 - rate)^n) / (n rate), as in `move`. n is the sum
    of the traces at the cell divided by the largest of them; with one row the factor is 1.
    """
    largest_trace = traces.amax(0).clamp(min=torch.finfo(traces.dtype).tiny)
    n = traces.sum(0) / largest_trace
    n = n.clamp(min=1)
    change = error @ traces * (1 - (1 - rate) ** n)
    table.add_(change / n)


def random_argmax(values: Tensor, noise: Tensor) -> Tensor:
    """Returns the column of the largest value in every row, [batch]; ties are broken by noise.

    values [batch, columns]; noise [batch, columns] in [0, 1).
    """
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

    transition [states, actions, states]: probabilities P(s' | s, a), which sum to less than 1 if the episode may end.
    reward [states, actions]. With a horizon, V is the best return of that many steps. Without a horizon, sweeps are
    repeated until no value changes by more than the tolerance; they converge if gamma < 1 or if every episode can end.
    Raises ValueError if they do not converge in MAX_SWEEPS sweeps.
    """
    value = torch.zeros_like(reward[:, 0])
    for _ in range(horizon or MAX_SWEEPS):
        previous = value
        action_value = reward + gamma * transition @ value
        value = action_value.amax(-1)
        if horizon is None and (value - previous).abs().max() <= tolerance:
            return value
    if horizon is None:
        raise ValueError(f"the values do not converge in {MAX_SWEEPS:,} sweeps; give a smaller gamma or a horizon")
    return value
