"""Priorities and importance weights of prioritised replay (Schaul et al. 2016, arXiv 1511.05952)."""

from torch import Tensor

ETA = 0.9  # weight of the largest error of a sequence against their mean, in its priority (R2D2, sec. 2.3)


def priority(
    error: Tensor,
    alpha: float,
    epsilon: float,
) -> Tensor:
    """Returns (|error| + epsilon)^alpha (sec. 3.3), in proportion to which rows are drawn; any shape."""
    return (error.abs() + epsilon) ** alpha


def importance_weight(
    probability: Tensor,
    size: int,
    beta: float,
) -> Tensor:
    """Returns (size * probability)^-beta over their maximum (sec. 3.4); probability [batch], of rows out of `size`."""
    weight = (size * probability) ** -beta
    return weight / weight.max()


def of_sequences(error: Tensor, weight: Tensor) -> Tensor:
    """Returns one error for each sequence, eta max_t error_t + (1 - eta) mean_t error_t; [time, batch] -> [batch].

    Steps of weight 0 are masked out; errors are not negative.
    """
    mask = (weight > 0).to(error.dtype)
    error = error * mask
    count = mask.sum(0).clamp(min=1)
    mean = error.sum(0) / count
    return ETA * error.amax(0) + (1 - ETA) * mean
