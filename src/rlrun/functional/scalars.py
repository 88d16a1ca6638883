"""What a network's outputs mean as one number, and what it costs to be wrong about it."""

import torch
from torch import Tensor

from rlrun.functional.distributional import project

SLOPE = 0.001  # keeps the squashing invertible


class Plain:
    """The output is the number; half the squared error."""

    size = 1

    def mean(self, output: Tensor) -> Tensor:
        """[..., 1] -> [...]."""
        return output.squeeze(-1)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Output [..., 1], target [...] -> [...]."""
        return 0.5 * (output.squeeze(-1) - target) ** 2


class TwoHot:
    """A distribution over whole numbers from -reach to reach, of the squashed number (arXiv 1911.08265, appendix F).

    The target puts its mass on the two neighbours of the number, in proportion; the loss is the cross-entropy.
    """

    def __init__(self, reach: int):
        self.reach, self.size = reach, 2 * reach + 1

    def mean(self, output: Tensor) -> Tensor:
        """Logits [..., size] -> [...]."""
        return unsquash((output.softmax(-1) * self.atoms(output)).sum(-1))

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Logits [..., size], target [...] -> [...]."""
        return -(self.spread(target) * output.log_softmax(-1)).sum(-1)

    def spread(self, target: Tensor) -> Tensor:
        """[...] -> probabilities [..., size]; numbers out of reach count as the last within."""
        place = squash(target).reshape(-1, 1)
        return project(place, torch.ones_like(place), self.atoms(place)).view(*target.shape, self.size)

    def atoms(self, like: Tensor) -> Tensor:
        return torch.arange(-self.reach, self.reach + 1, device=like.device, dtype=like.dtype)


def squash(x: Tensor) -> Tensor:
    """sign(x) (sqrt(|x| + 1) - 1) + 0.001 x (arXiv 1805.11593, proposition A.2)."""
    return x.sign() * ((x.abs() + 1).sqrt() - 1) + SLOPE * x


def unsquash(y: Tensor) -> Tensor:
    """The inverse of `squash`."""
    root = (1 + 4 * SLOPE * (y.abs() + 1 + SLOPE)).sqrt()
    return y.sign() * (((root - 1) / (2 * SLOPE)) ** 2 - 1)
