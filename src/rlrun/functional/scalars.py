"""Two representations of a scalar by network outputs, each with its loss: the scalar itself, or a distribution."""

import torch
from torch import Tensor

from rlrun.functional.distributional import project

SLOPE = 0.001  # coefficient of the linear term in `squash`


class Plain:
    """Represents a scalar by a single output; the loss is half the squared error."""

    size = 1

    def mean(self, output: Tensor) -> Tensor:
        """Returns the represented scalar; [..., 1] -> [...]."""
        return output.squeeze(-1)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Returns the loss per row; output [..., 1], target [...] -> [...]."""
        error = output.squeeze(-1) - target
        return 0.5 * error**2


class TwoHot:
    """Represents a squashed scalar by a distribution over the integers -reach ... reach (arXiv 1911.08265, appendix F).

    The target distribution divides probability 1 between the two integers next to the squashed target, by linear
    interpolation: 2.3 becomes 0.7 at 2 and 0.3 at 3. The loss is the cross-entropy.
    """

    def __init__(self, reach: int):
        self.reach = reach
        self.size = 2 * reach + 1

    def mean(self, logits: Tensor) -> Tensor:
        """Returns the represented scalar, the unsquashed mean of the distribution; logits [..., size] -> [...]."""
        probability = logits.softmax(-1)
        squashed = (probability * self.atoms(logits)).sum(-1)
        return unsquash(squashed)

    def loss(self, logits: Tensor, target: Tensor) -> Tensor:
        """Returns the loss per row; logits [..., size], target [...] -> [...]."""
        log_probability = logits.log_softmax(-1)
        return -(self.target_distribution(target) * log_probability).sum(-1)

    def target_distribution(self, target: Tensor) -> Tensor:
        """Returns the target distribution, [...] -> [..., size]; squashed targets are clipped to [-reach, reach]."""
        position = squash(target).reshape(-1, 1)
        certain = torch.ones_like(position)  # probability of each position, which `project` clips to the atoms
        probability = project(position, certain, self.atoms(position))
        return probability.view(*target.shape, self.size)

    def atoms(self, like: Tensor) -> Tensor:
        """Returns the integers from -reach to reach, [size], with the device and dtype of `like`."""
        end = self.reach + 1
        return torch.arange(-self.reach, end, device=like.device, dtype=like.dtype)


def squash(x: Tensor) -> Tensor:
    """Returns sign(x) (sqrt(|x| + 1) - 1) + SLOPE x (arXiv 1805.11593, proposition A.2)."""
    root = (x.abs() + 1).sqrt()
    return x.sign() * (root - 1) + SLOPE * x


def unsquash(y: Tensor) -> Tensor:
    """Returns the inverse of `squash`: x with squash(x) = y."""
    root = (1 + 4 * SLOPE * (y.abs() + 1 + SLOPE)).sqrt()
    magnitude = ((root - 1) / (2 * SLOPE)) ** 2 - 1
    return y.sign() * magnitude
