"""The part `model`: base class of networks that learn latent states of observations by a loss of their own."""

from typing import ClassVar

from gymnasium import Space
from torch import Tensor, nn

from rlrun.core.random import Stream
from rlrun.types import Batch, Metrics, Obs


class LearnedModel(nn.Module):
    """A network with a loss of each row. Its holder, an agent or an add-on, has the optimiser and calls `loss` in a
    kernel, once per gradient step.

    latent: space of the latent states.
    """

    registered: ClassVar[str] = "?"  # the name in configs, set by @register
    latent: Space

    def noise(self, batch: Batch, stream: Stream) -> Batch:
        """Returns the random numbers that one call of `loss` with this batch takes."""
        return {}

    def encode(self, obs: Obs) -> Tensor:
        """Returns latent states [batch, *latent] without noise, such as the mode of a posterior."""
        raise NotImplementedError

    def decode(self, latent: Tensor) -> Tensor:
        """Returns the observations of latent states [batch, *latent], flattened as by `FlattenInputs`, [batch, size].

        Choices are probabilities.
        """
        raise NotImplementedError

    def loss(self, batch: Batch, noise: Batch) -> tuple[Tensor, Metrics]:
        """Returns the loss of each row [batch], and detached metrics over the rows of weight above 0.

        batch: `obs` [batch, ...] and `weight` [batch]. noise: what `noise` returned for it. Draws no random numbers.
        Running statistics, such as those of a codebook, include the batch afterwards.
        """
        raise NotImplementedError
