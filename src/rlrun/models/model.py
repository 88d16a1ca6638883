"""The part `model`: base class of networks that learn latent states of observations by a loss of their own."""

from typing import ClassVar

from gymnasium import Space
from torch import Tensor, nn

from rlrun.core.random import Stream
from rlrun.errors import ConfigError
from rlrun.networks.heads import Head
from rlrun.networks.recurrent import is_recurrent
from rlrun.settings import registry
from rlrun.types import Batch, Metrics, Obs

KEY = "algo.representation.model"


class LearnedModel(nn.Module):
    """A network with a loss of each row. Its holder, an agent or an add-on, has the optimiser and calls `loss` in a
    kernel, once per gradient step.

    latent: space of the latent states.
    """

    registered: ClassVar[str] = "?"  # the name in configs, set by @register
    has_loss: ClassVar[bool] = True  # whether it can learn by itself
    passes_gradients: ClassVar[bool] = True  # whether losses of what `encode` returns reach its weights
    latent: Space
    encoder: nn.Module

    @property
    def encoding_network(self) -> nn.Module:
        """A module with all weights that `encode` reads."""
        return self.encoder

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


def encoder_of(network: dict[str, object], inputs: list[Space], outputs: int) -> Head:
    """Returns the chosen network with a linear layer of `outputs` units. Raises ConfigError for a recurrent one."""
    name = str(network["name"])
    if is_recurrent(name):
        raise ConfigError(f"{KEY}.network={name}: is not supported, because a model takes single observations")
    return Head(registry.build("network", network, inputs, None, path=f"{KEY}.network"), outputs)
