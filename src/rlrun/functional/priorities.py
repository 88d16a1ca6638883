"""Priorities and importance weights of prioritised replay (Schaul et al. 2016, arXiv 1511.05952)."""

from torch import Tensor

from rlrun.functional.losses import mean_over_columns

ETA = 0.9  # weight of the largest error in the priority of a sequence; the mean has weight 1 - ETA (R2D2, sec. 2.3)


def priority(
    error: Tensor,
    alpha: float,
    epsilon: float,
) -> Tensor:
    """Returns priorities (|error| + epsilon)^alpha (sec. 3.3), elementwise; rows are drawn in proportion to them."""
    return (error.abs() + epsilon) ** alpha


def importance_weight(
    probability: Tensor,
    size: int,
    beta: float,
) -> Tensor:
    """Returns importance weights (size * probability)^-beta (sec. 3.4), [batch].

    probability [batch]: the probability with which each row was drawn. size: number of rows in the buffer.
    """
    return (size * probability) ** -beta


def of_sequences(error: Tensor, weight: Tensor) -> Tensor:
    """Returns one error per sequence, eta max_t error_t + (1 - eta) mean_t error_t; [time, batch] -> [batch].

    Steps of weight 0 are left out. Errors must not be negative.
    """
    mask = (weight > 0).to(error.dtype)
    error = error * mask
    count = mask.sum(0).clamp(min=1)
    mean = error.sum(0) / count
    return ETA * error.amax(0) + (1 - ETA) * mean


def mean_absolute(errors: Tensor) -> Tensor:
    """Returns one error per row, the mean absolute error over the members and any reward columns; [batch].

    errors: as in `of_ensemble`.
    """
    error = errors.abs().mean(0)
    return mean_over_columns(error)


def of_ensemble(errors: Tensor) -> Tensor:
    """Returns one error per row, the root mean squared error over the members and any reward columns; [batch].

    errors are [members, batch] or [members, batch, columns], without gradients.
    """
    squared_error = (errors**2).mean(0)
    return mean_over_columns(squared_error).sqrt()
