"""Dynamics of latent states: a network whose state, after each action, is decoded to the next latent state.

Shapes: R rows, L size of a latent state, S size of a state of the dynamics.
"""

from gymnasium import Space
from torch import Tensor

from rlrun.networks.heads import Head
from rlrun.networks.linear import Linear
from rlrun.networks.recurrent import Recurrent, is_recurrent
from rlrun.settings import registry
from rlrun.spaces import unbounded


class LatentDynamics(Head):
    """latent' = latent + net(latent, action). Its state is the latent state."""

    begins_with_memory = False  # whether `start` reads the state of the encoder

    def start(self, latent: Tensor, memory: Tensor | None) -> Tensor:
        """Returns the first state [R, S] of a latent state [R, L]. memory [R, size]: the state of its encoder."""
        return latent

    def step(self, state: Tensor, action: Tensor) -> Tensor:
        """Returns the next state [R, S] of a state and an action [R, ...]."""
        change: Tensor = self(state, action)
        return state + change

    def latent(self, state: Tensor) -> Tensor:
        """Returns the latent state [R, L] of a state."""
        return state


class RecurrentLatentDynamics(LatentDynamics):
    """A recurrent network of actions, with a linear layer from its output to the latent state.

    It begins with the state of the encoder if both states have the same size, else with a linear projection of the
    latent state. memory_size: size of the state of the encoder; None: it has none.
    """

    torso: Recurrent

    def __init__(self, torso: Recurrent, latent_size: int, memory_size: int | None):
        super().__init__(torso, latent_size)
        self.begins_with_memory = memory_size == torso.size
        self.projection: Linear | None = None
        if not self.begins_with_memory:
            self.projection = Linear(latent_size, torso.size)

    def start(self, latent: Tensor, memory: Tensor | None) -> Tensor:
        if self.projection is None:
            if memory is None:
                raise ValueError("these dynamics begin with the state of the encoder, not with a latent state")
            return memory
        return self.projection(latent)

    def step(self, state: Tensor, action: Tensor) -> Tensor:
        return self.torso.next_state({"obs": action, "hidden_state": state})

    def latent(self, state: Tensor) -> Tensor:
        latent: Tensor = self({"next_hidden_state": state})
        return latent


def latent_dynamics(
    network: dict[str, object], path: str, latent_size: int, action: Space, memory_size: int | None
) -> LatentDynamics:
    """Returns dynamics with the given network. path: of its settings. memory_size: as `RecurrentLatentDynamics` has it.

    Raises ConfigError if the network does not take these inputs.
    """
    if is_recurrent(str(network["name"])):
        torso = registry.build("network", network, [action], None, path=path)
        return RecurrentLatentDynamics(torso, latent_size, memory_size)
    torso = registry.build("network", network, [unbounded(latent_size), action], None, path=path)
    return LatentDynamics(torso, latent_size)
