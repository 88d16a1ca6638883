"""Two ways in which a network's outputs represent one number, each with its loss."""

import torch
from torch import Tensor

from rlrun.functional.distributional import project

SLOPE = 0.001  # keeps the squashing invertible


class Plain:
    """The output is the number; the loss is half the squared error."""

    size = 1

    def mean(self, output: Tensor) -> Tensor:
        """Returns the number; [..., 1] -> [...]."""
        return output.squeeze(-1)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Returns the loss per row; output [..., 1], target [...] -> [...]."""
        error = output.squeeze(-1) - target
        return 0.5 * error**2


class TwoHot:
    """A distribution over integers from -reach to reach, of the squashed number (arXiv 1911.08265, appendix F).

    The target puts its probability on the two neighbours of the number, in proportion; the loss is the cross-entropy.
    """

    def __init__(self, reach: int):
        self.reach = reach
        self.size = 2 * reach + 1

    def mean(self, output: Tensor) -> Tensor:
        """Returns the number; logits [..., size] -> [...]."""
        probability = output.softmax(-1)
        squashed = (probability * self.atoms(output)).sum(-1)
        return unsquash(squashed)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Returns the loss per row; logits [..., size], target [...] -> [...]."""
        log_probability = output.log_softmax(-1)
        return -(self.spread(target) * log_probability).sum(-1)

    def spread(self, target: Tensor) -> Tensor:
        """Returns the target distribution, [...] -> [..., size]; numbers out of reach count as the last one within."""
        position = squash(target).reshape(-1, 1)
        probability = project(position, torch.ones_like(position), self.atoms(position))
        return probability.view(*target.shape, self.size)

    def atoms(self, like: Tensor) -> Tensor:
        """Returns the integers from -reach to reach, with the device and dtype of a tensor."""
        return torch.arange(-self.reach, self.reach + 1, device=like.device, dtype=like.dtype)


def squash(x: Tensor) -> Tensor:
    """Returns sign(x) (sqrt(|x| + 1) - 1) + 0.001 x (arXiv 1805.11593, proposition A.2)."""
    root = (x.abs() + 1).sqrt()
    return x.sign() * (root - 1) + SLOPE * x


def unsquash(y: Tensor) -> Tensor:
    """Returns the x of which y is the `squash`."""
    root = (1 + 4 * SLOPE * (y.abs() + 1 + SLOPE)).sqrt()
    size = ((root - 1) / (2 * SLOPE)) ** 2
    return y.sign() * (size - 1)
