"""An encoder of observations before the torsos of an agent."""

from collections.abc import Callable

from gymnasium import Space
from torch import Tensor, nn

from rlrun.types import Obs


class Encoder(nn.Module):
    """The encoder of a model, which the agent trains. Copies, as for target networks, have a copy of the model.

    network: holds all weights that `encode` reads. space: of the latent states.
    """

    def __init__(self, network: nn.Module, encode: Callable[[Obs], Tensor], space: Space):
        super().__init__()
        self.network, self.encode, self.space = network, encode, space

    def forward(self, obs: Obs) -> Tensor:
        return self.encode(obs)

    def before(self, torso: nn.Module, role: str | None) -> "Encoded":
        """Returns the torso with this encoder before its first input.

        The torso holds the encoder, except for the actor's. So it belongs to the critic's optimiser, and losses that
        another optimiser of the actor minimises do not train it (SAC-AE, arXiv 1910.01741).
        """
        if role == "actor":
            return Encoded(Borrowed(self), torso)
        return Encoded(self, torso)


class Borrowed:
    """An encoder that a torso calls but does not hold: it is in another place of the module tree, and target networks
    of the torso call it too."""

    def __init__(self, encoder: Encoder):
        self.encoder = encoder

    def __call__(self, obs: Obs) -> Tensor:
        latent: Tensor = self.encoder(obs)
        return latent

    def __deepcopy__(self, memo: dict[int, object]) -> "Borrowed":
        return self


class Encoded(nn.Module):
    """A torso whose first input is the latent state of the observation."""

    def __init__(self, encoder: Callable[[Obs], Tensor], torso: nn.Module):
        super().__init__()
        self.encoder = encoder  # before the torso, so that an optimiser of both holds its weights side by side
        self.torso = torso
        self.features: int = torso.features  # type: ignore[assignment]

    def forward(self, obs: Obs, *others: Tensor) -> Tensor:
        latent = self.encoder(obs)
        features: Tensor = self.torso(latent, *others)
        return features
