"""Prioritised replay (Schaul et al. 2016, arXiv 1511.05952): how often rows are drawn, and how that is made good."""

from torch import Tensor

LARGEST = 0.9  # share of a sequence's largest error in its priority; the rest is their mean (R2D2, sec. 2.3)


def priority(error: Tensor, alpha: float, epsilon: float) -> Tensor:
    """(|error| + epsilon)^alpha (sec. 3.3): a row is drawn with a probability in proportion to it; any shape."""
    return (error.abs() + epsilon) ** alpha


def importance_weight(probability: Tensor, size: int, beta: float) -> Tensor:
    """(size * probability)^-beta over the largest of them (sec. 3.4); probability [batch], of rows out of `size`."""
    correction = (size * probability) ** -beta
    return correction / correction.max()


def of_sequences(error: Tensor, weight: Tensor) -> Tensor:
    """One error for each sequence, of steps that count; both [time, batch], errors not negative -> [batch]."""
    there = (weight > 0).to(error.dtype)
    error = error * there
    mean = error.sum(0) / there.sum(0).clamp(min=1)
    return LARGEST * error.amax(0) + (1 - LARGEST) * mean
